"""The properties of an NVIDIA architecture that the shared LLVM emitter uses."""

from __future__ import annotations

import functools

from farrier.ir import instr
from farrier.ir.instr import Operand
from farrier.targets.llvm.builder import Builder, Instructions

_FIRST_WITH_BF16 = 80  # PTX ISA, `cvt`: to bf16 from sm_80 on.


@functools.cache
def instructions_of(cpu: str) -> Instructions:
    """Return the instruction properties of an architecture, which select instructions that LLVM
    would not choose by itself."""
    return Instructions(
        converts_f16=True,
        keeps_nan=True,
        rounds_bf16=int(cpu.removeprefix("sm_").removesuffix("a")) >= _FIRST_WITH_BF16,
        to_nearest_i32=_to_nearest_i32,
    )


def _to_nearest_i32(b: Builder, x: Operand) -> Operand:
    return b.call("llvm.nvvm.f2i.rn", instr.I32, x)
