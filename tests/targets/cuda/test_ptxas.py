"""NVIDIA's assembler accepts the PTX of every architecture, and keeps a thread in registers."""

from __future__ import annotations

import pytest

from farrier.errors import CompilerError
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.architectures import ARCHITECTURES
from farrier.targets.cuda.assembler import assemble, find_ptxas
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.cuda.tensor_cores import products_of
from tests.ir.kernels import KERNELS
from tests.targets.cuda.products import lowered, product

pytestmark = pytest.mark.skipif(
    find_ptxas() is None, reason="ptxas is missing: install the package nvidia-cuda-nvcc"
)


@pytest.mark.parametrize("cpu", ARCHITECTURES)
@pytest.mark.parametrize("name", ["attention", "odd_product", "reverse"])
def test_ptxas_accepts_a_kernel_and_spills_nothing(name, cpu):
    _assemble(lower_threads(KERNELS[name][0]), cpu)


@pytest.mark.parametrize("cpu", ARCHITECTURES)
def test_ptxas_accepts_products_of_fragments(cpu):
    for declared in products_of(cpu):
        program = product(200, 192, 96, declared)
        _assemble(lowered(program, declared, each=(4, 4), steps=1), cpu)
        if declared.stages > 1:
            _assemble(lowered(program, declared, each=(2, 4), steps=1, stages=3), cpu)


def test_a_module_that_it_rejects_is_a_compilers_error():
    with pytest.raises(CompilerError, match=r"rejects PTX for sm_80: .*fatal"):
        assemble(".version 7.0\n.target sm_80\nnothing", "sm_80", find_ptxas())


def _assemble(function, cpu):
    cubin, frames = assemble(ptx_of(render(function, cpu), cpu), cpu, find_ptxas())
    assert cubin.startswith(b"\x7fELF")
    assert frames
    assert all(frame.is_in_registers for frame in frames)
