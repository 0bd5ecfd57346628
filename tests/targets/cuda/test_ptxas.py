"""NVIDIA's assembler accepts the PTX of every architecture, and keeps a thread in registers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.cuda.tensor_cores import products_of
from tests.ir.kernels import KERNELS
from tests.targets.cuda.products import lowered, product


def _ptxas():
    """Return the assembler: that of a toolkit, or of the package nvidia-cuda-nvcc."""
    if on_path := shutil.which("ptxas"):
        return on_path
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec and spec.submodule_search_locations else ()
    for root in map(Path, roots):
        for program in root.glob("*/bin/ptxas"):
            return str(program)
    pytest.skip("ptxas is missing: install the package nvidia-cuda-nvcc")


@pytest.mark.parametrize("cpu", ARCHITECTURES)
@pytest.mark.parametrize("name", ["attention", "odd_product", "reverse"])
def test_ptxas_accepts_a_kernel_and_spills_nothing(name, cpu, tmp_path):
    _assemble(lower_threads(KERNELS[name][0]), cpu, tmp_path)


@pytest.mark.parametrize("cpu", ARCHITECTURES)
def test_ptxas_accepts_products_of_fragments(cpu, tmp_path):
    for declared in products_of(cpu):
        program = product(200, 192, 96, declared)
        _assemble(lowered(program, declared, each=(4, 4), steps=1), cpu, tmp_path)
        if declared.stages > 1:
            _assemble(lowered(program, declared, each=(2, 4), steps=1, stages=3), cpu, tmp_path)


def _assemble(function, cpu, tmp_path):
    of_each = frames(ptx_of(render(function, cpu), cpu), cpu, tmp_path)
    assert of_each
    assert all(frame == ("0", "0") for frame in of_each)


def frames(text, cpu, tmp_path):
    """Return the bytes of the stack and of spilled registers of each entry point."""
    source = tmp_path / "kernel.ptx"
    source.write_text(text)
    command = [_ptxas(), "-v", "-arch", cpu, str(source), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", done.stderr)
