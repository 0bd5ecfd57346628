"""Kernels for aarch64, run on this machine by qemu-user: no libc, no arm64 root."""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from farrier.lower.region import lower_region
from farrier.ops.run import run_node
from farrier.passes import optimize
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.emit import emit_function
from farrier.targets.cpu.codegen.workspace import plan
from farrier.targets.cpu.rules import for_program
from tests.lowering import final_loops
from tests.targets.cpu.codegen.differential import Memory

QEMU = shutil.which("qemu-aarch64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (qemu-user) is not installed")
_HERE = Path(__file__).parent
_CROSS = ("-target", "aarch64-freestanding-none", "-ffreestanding", "-fno-stack-protector")


def run_emulated(function, inputs, target, cpu="max"):
    """The logical outputs by name, of one call with one thread on qemu's processor `cpu`. The
    function has neither open sizes nor slices of its own."""
    needed = plan(function)
    assert not function.dims
    assert not needed.per_worker
    memory = {param.name: Memory(param, inputs.get(param.name)) for param in function.params}
    contents = [memory[param.name].packed.tobytes() for param in function.params]
    contents += [b"\xff" * needed.shared_bytes] if needed.shared else []
    parts = [struct.pack("<Q", len(contents))]
    for content in contents:
        parts += [struct.pack("<Q", len(content)), content]
    with tempfile.TemporaryDirectory() as name:
        program = Path(name, "program")
        Path(name, "runner.o").write_bytes(_runner())
        Path(name, "kernel.o").write_bytes(compile_text(emit_function(function, target), target))
        _zig("ld.lld", "-static", "-o", program, Path(name, "runner.o"), Path(name, "kernel.o"))
        command = [QEMU, "-cpu", cpu, str(program)]
        done = subprocess.run(command, input=b"".join(parts), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode() or f"it ended with {done.returncode}"
    at, outputs = 0, {}
    for param, content in zip(function.params, contents, strict=False):
        result = done.stdout[at : at + len(content)]
        at += len(content)
        own = memory[param.name]
        own.packed[...] = np.frombuffer(result, own.packed.dtype).reshape(own.packed.shape)
        if param.name not in inputs:
            outputs[param.name] = own.logical()
    return outputs


def run_graph_emulated(graph, inputs, settings, cpu="max"):
    """The outputs of a model by name, as it is compiled for `settings`: every kernel by its first
    schedule, and what stands between kernels in numpy."""
    graph = optimize(graph, settings)
    constants = {constant.value.name: constant.data for constant in graph.constants}
    arrays = {**constants, **inputs}
    for node in graph.nodes:
        operands = [arrays[value.name] for value in node.inputs if value is not None]
        if node.op == "Fused":
            results = _run_kernel(node, operands, constants, settings, cpu)
        else:
            results = run_node(node, [value and arrays[value.name] for value in node.inputs])
        # A schedule may join axes that lie together.
        arrays |= {
            value.name: array.reshape(value.type.shape)
            for value, array in zip(node.outputs, results, strict=True)
        }
    return {value.name: arrays[value.name] for value in graph.outputs}


def _run_kernel(node, operands, constants, settings, cpu):
    (region,) = node.regions
    constant_names = {
        inner.name
        for inner, value in zip(region.inputs, node.inputs, strict=True)
        if value.name in constants
    }
    program = lower_region(region, "kernel", constant_names)
    space = for_program(program, settings.target, settings.threads)
    function = final_loops(space, space.default(), settings.target)
    names = [param.name for param in function.params][: len(operands)]
    inputs = dict(zip(names, operands, strict=True))
    return run_emulated(function, inputs, settings.target, cpu).values()


@functools.cache
def _runner():
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "runner.o")
        _zig("cc", *_CROSS, "-O1", "-c", _HERE / "emulated.c", "-o", path)
        return path.read_bytes()


def _zig(*words):
    command = [sys.executable, "-m", "ziglang", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
