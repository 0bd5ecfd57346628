"""Farrier's own elementary functions as LLVM functions of scalars, with the polynomials that the
code for processors has. LLVM's intrinsics for them end the process on NVPTX, or are too inexact."""

from __future__ import annotations

import functools

from farrier.ir import instr
from farrier.ir.expr import BinaryOp, UnaryOp
from farrier.ir.types import DType
from farrier.targets.llvm import math_functions
from farrier.targets.llvm.builder import Builder
from farrier.targets.llvm.llvm_text import definition
from farrier.targets.llvm.values import Value, type_of

# Those of angles follow: their reduction has tables in memory.
UNARY = frozenset(
    {
        *(UnaryOp.EXP, UnaryOp.EXP_NONPOSITIVE, UnaryOp.EXPM1, UnaryOp.LOG, UnaryOp.LOG1P),
        *(UnaryOp.SINH, UnaryOp.COSH, UnaryOp.TANH, UnaryOp.ASINH, UnaryOp.ACOSH, UnaryOp.ATANH),
        *(UnaryOp.ASIN, UnaryOp.ACOS, UnaryOp.ATAN, UnaryOp.ERF),
        *(UnaryOp.SIGMOID, UnaryOp.GELU, UnaryOp.GELU_TANH, UnaryOp.MISH),
    }
)
_BINARY = {BinaryOp.POW: math_functions.power, BinaryOp.SWISH: math_functions.swish}
BINARY = frozenset(_BINARY)


def symbol(name: str, dtype: DType) -> str:
    """Return the name of a function's definition."""
    return f"farrier.{name}.{dtype}"


@functools.cache
def definition_of(name: str, dtype: DType) -> tuple[str, tuple[str, ...]]:
    """Return the definition of a function, by the name of its operator, and what it declares."""
    type_ = type_of(dtype)
    builder = Builder()
    operands = [instr.Variable(type_, each) for each in ("x", "y")]
    values = [Value(operand, dtype) for operand in operands]
    if name in BINARY:
        result = _BINARY[BinaryOp(name)](builder, *values)
    else:
        operands = operands[:1]
        result = math_functions.expand(builder, name, values[0])
    function = instr.Function(symbol(name, dtype), tuple(operands), builder.body, result)
    declared: set[str] = set()
    text = definition(function, "alwaysinline", declared)
    return text, tuple(sorted(declared))
