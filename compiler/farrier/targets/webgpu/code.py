"""The code of a model for WebGPU: a module of WGSL for each kernel, and a program that launches
them.

Objects and libraries are JSON texts, {"kernels": {NAME: WGSL}, "programs": {NAME: PROGRAM}}
(`farrier_device.webgpu_library`). An artifact has the modules as files of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from farrier.artifact.code import CodeObject, ModelCode
from farrier.errors import CompilerError
from farrier.ir.dim import Atom, Extent, substitute
from farrier.ir.loop import Function
from farrier.partition.model_plan import ModelPlan
from farrier.partition.placement import Site, place
from farrier.partition.program import Call, DriverProgram, Shape
from farrier.targets.interface import Interface
from farrier.targets.linked import LinkedModel
from farrier.targets.target import Target
from farrier.targets.webgpu.wgsl import entry_points, render, scratch_bytes
from farrier_device.program import Program, program_to_json
from farrier_device.webgpu_library import GPU, LIBRARY, MOST_BYTES, WGSL

ENTRY = "run"


class Plan(ModelPlan):
    """The plan of a model whose kernels run on the GPU."""

    def measured_entry(self, target: Any, name: str) -> bytes:
        return written({}, {name: self.executable()[0]})


def interface(function: Function) -> Interface:
    """Return the interface of a lowered kernel."""
    scratch = function.over_dims(scratch_bytes(function))
    entries = entry_points(function)
    return Interface(function.name, function.params, function.dims, scratch, 0, entries)


def plan(
    program: DriverProgram,
    kernels: Mapping[str, Interface],
    target: Target,
    threads: int,
    beside: Any,
) -> Plan:
    """Place every kernel on the GPU, and the memory of the model there."""

    def site_of(call: Call) -> Site:
        kernel = kernels[call.task]
        dims: dict[Atom, Extent] = dict(zip(kernel.dims, call.dims, strict=True))
        shapes = (
            Shape(entry.suffix, (substitute(entry.blocks, dims),), (entry.threads,))
            for entry in kernel.entries
        )
        return Site(GPU, tuple(shapes))

    _check_sizes(program)
    placed = place(program, site_of)
    alignments = {space.name: space.alignment for space in target.spaces}
    return Plan.of(placed, kernels, threads, beside, alignments)


def _check_sizes(program: DriverProgram) -> None:
    """Raise CompilerError for an array that no kernel can reach all of."""
    for call in program.calls:
        for value in (*call.inputs, *call.outputs):
            nbytes = value.type.nbytes
            if isinstance(nbytes, int) and nbytes > MOST_BYTES:
                raise CompilerError(
                    f"{value.name} of node {call.origin!r} has {nbytes >> 20} MiB, and an array of "
                    f"a kernel of WebGPU at most {MOST_BYTES >> 20}",
                    hint="--target host compiles for the processor",
                )


def assemble(planned: Plan, objects: Sequence[bytes]) -> LinkedModel:
    """Return the code of a model. Code for single sizes is the same as that for all."""
    program, checks = planned.executable()
    library = joined([*objects, written({}, {ENTRY: program})])
    modules: dict[str, str] = json.loads(library)["kernels"]
    most = planned.memory.most_bytes
    part = {"workspace": most if isinstance(most, int) else str(most)}
    return LinkedModel(
        code=ModelCode(tuple(map(_file, modules, modules.values())), part, program),
        library=CodeObject("code/library.json", LIBRARY, (ENTRY,), library),
        params=planned.arena.pack(),
        bytes_of=planned.arena.bytes_of,
        memories=(planned.memory,),
        dims=planned.dims,
        capacities=planned.capacities,
        counted=planned.counted,
        checks=checks,
        sizes=planned.sizes,
        calls=planned.calls,
        entries=(ENTRY,),
        driver=planned.program,
    )


def _file(name: str, text: str) -> CodeObject:
    """The module of a kernel; the end of a kernel's name is unique."""
    return CodeObject(f"code/{name[-90:]}.wgsl", WGSL, (name,), text.encode())


def compiled(functions: Sequence[Function]) -> bytes:
    """Return the object of lowered kernels."""
    return written({function.name: render(function) for function in functions}, {})


def written(kernels: Mapping[str, str], programs: Mapping[str, Program]) -> bytes:
    """Return an object of modules and programs, by name."""
    parts = {name: json.loads(program_to_json(program)) for name, program in programs.items()}
    return json.dumps({"kernels": dict(kernels), "programs": parts}).encode()


def joined(objects: Sequence[bytes]) -> bytes:
    """Return the library of objects."""
    whole: dict[str, dict[str, Any]] = {"kernels": {}, "programs": {}}
    for content in map(json.loads, objects):
        for part, named in whole.items():
            named.update(content[part])
    return json.dumps(whole).encode()
