"""Values: the results of instructions together with the dtypes of the expressions that they
represent."""

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
    """An operand of instructions that represents a value of the expression grammar.

    If `lanes` is 1, the operand is a scalar that is equal in every lane of the vectorized loop, or
    it is a register that holds a whole tile of rows. `const` is the number if the value is a
    literal, else None.
    """

    operand: Operand
    dtype: DType
    lanes: int = 1
    const: int | float | bool | None = None

    @property
    def type(self) -> Type:
        return self.operand.type

    def held_in(self, operand: Operand) -> Value:
        """Return a value of the same dtype with another operand. The result is never a literal."""
        return self._replace(operand=operand, const=None)


@functools.cache
def type_of(dtype: DType, lanes: int = 1) -> Type:
    """Return the register type for `lanes` elements of a dtype."""
    return vector(_IN_REGISTER[dtype], lanes)


@functools.cache
def memory_type(dtype: DType, lanes: int = 1) -> Type:
    """Return the memory type for `lanes` elements of a dtype."""
    return vector(_IN_MEMORY[dtype], lanes)


def literal(value: int | float | bool, dtype: DType, lanes: int = 1) -> Value:
    """Return a constant of `dtype` in every lane as a value. Narrow floats are rounded."""
    return _literal(value, math.copysign(1, value), dtype, lanes)


@functools.cache
def _literal(value: int | float | bool, _sign: float, dtype: DType, lanes: int) -> Value:
    # `_sign` keeps 0.0 and -0.0 apart in the cache.
    value = _held(value, dtype)
    return Value(instr.number_of(type_of(dtype, lanes), value), dtype, lanes, value)


def _held(value: int | float | bool, dtype: DType) -> int | float | bool:
    """Return the number that an element of `dtype` stores for `value`: floats are rounded, integers
    wrap around."""
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
    """Return the f32 nearest to a number."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded
