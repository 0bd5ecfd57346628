"""Values: operands of instructions with the dtypes of the expressions that they hold."""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

import numpy as np

from farrier.ir import instr
from farrier.ir.instr import Operand, Type, vector
from farrier.ir.special import convert
from farrier.ir.types import DType

# How a value is held in a register. Narrow floats are computed in f32 and rounded when stored;
# integers of less than a byte are extended to one.
_IN_REGISTER = {
    **{dtype: f"i{8 * dtype.nbytes}" for dtype in DType if dtype.is_integer},
    **{dtype: "f32" for dtype in DType if dtype.is_narrow_float},
    DType.F32: "f32", DType.F64: "f64", DType.BOOL: "i1",
}  # fmt: skip
_IN_MEMORY = {
    **_IN_REGISTER,
    **{dtype: f"i{8 * dtype.nbytes}" for dtype in DType if dtype.is_narrow_float},
    DType.F16: "f16", DType.BOOL: "i8",
}  # fmt: skip


class Value(NamedTuple):
    """An operand of instructions, as a value of the expression grammar.

    `lanes` 1 is a scalar, which stands for every lane of a vectorized loop, or a whole tile of
    rows. `const` is the number that a literal holds in each lane.
    """

    operand: Operand
    dtype: DType
    lanes: int = 1
    const: int | float | bool | None = None

    @property
    def type(self) -> Type:
        return self.operand.type

    def held_in(self, operand: Operand) -> Value:
        """Return another value of this dtype, which is not a literal even if this one is."""
        return self._replace(operand=operand, const=None)


@functools.cache
def type_of(dtype: DType, lanes: int = 1) -> Type:
    """The type that holds `lanes` elements in a register."""
    return vector(_IN_REGISTER[dtype], lanes)


@functools.cache
def memory_type(dtype: DType, lanes: int = 1) -> Type:
    """The type of `lanes` elements in memory."""
    return vector(_IN_MEMORY[dtype], lanes)


def literal(value: int | float | bool, dtype: DType, lanes: int = 1) -> Value:
    """A constant of `dtype` in every lane, as a value; narrow floats are rounded."""
    return _literal(value, math.copysign(1, value), dtype, lanes)


@functools.cache
def _literal(value: int | float | bool, _sign: float, dtype: DType, lanes: int) -> Value:
    # `_sign` keeps 0.0 and -0.0 apart in the cache.
    value = _held(value, dtype)
    return Value(instr.number_of(type_of(dtype, lanes), value), dtype, lanes, value)


def _held(value: int | float | bool, dtype: DType) -> int | float | bool:
    """The number that an element of `dtype` holds: floats rounded, integers wrapped around."""
    if dtype is DType.BOOL:
        return bool(value)
    if dtype.is_narrow_float:
        return float(convert(np.array(value, np.float64), dtype).astype(np.float64))
    if dtype.is_float:
        return float(value) if dtype is DType.F64 else _single(float(value))
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    negative = dtype.is_signed and wrapped >> (dtype.bits - 1)
    return wrapped - (1 << dtype.bits) if negative else wrapped


def _single(value: float) -> float:
    """The f32 next to a number."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded
