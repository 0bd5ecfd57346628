"""Names of LLVM's types, and literals of them."""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

import numpy as np

from farrier.ir.special import convert
from farrier.ir.types import DType

# How a value is held in a register. Narrow floats are computed in f32 and rounded when stored;
# integers of less than a byte are extended to one.
_IN_REGISTER = {
    **{dtype: f"i{8 * dtype.nbytes}" for dtype in DType if dtype.is_integer},
    **{dtype: "float" for dtype in DType if dtype.is_narrow_float},
    DType.F32: "float", DType.F64: "double", DType.BOOL: "i1",
}  # fmt: skip
_IN_MEMORY = {
    **_IN_REGISTER,
    **{dtype: f"i{8 * dtype.nbytes}" for dtype in DType if dtype.is_narrow_float},
    DType.F16: "half", DType.BOOL: "i8",
}  # fmt: skip
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


class Value(NamedTuple):
    """An SSA value or a literal: `text` is what instructions name it by.

    `lanes` 1 is a scalar, which stands for every lane of a vectorized loop. `const` is the number
    that a literal holds in each lane.
    """

    text: str
    dtype: DType
    lanes: int = 1
    const: int | float | bool | None = None
    register: str = ""  # LLVM's type of a whole tile of rows, which has no lanes

    @property
    def type(self) -> str:
        return self.register or type_of(self.dtype, self.lanes)

    def named(self, text: str) -> Value:
        """Another value of this type, which is no literal even where this one is."""
        return self._replace(text=text, const=None)


def vector(element: str, lanes: int) -> str:
    """`lanes` elements of an LLVM type; one element is a scalar."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@functools.cache
def type_of(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type that holds `lanes` elements in a register."""
    return vector(_IN_REGISTER[dtype], lanes)


@functools.cache
def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type of `lanes` elements in memory."""
    return vector(_IN_MEMORY[dtype], lanes)


@functools.cache
def suffix(type_name: str) -> str:
    """How an intrinsic's name spells a type: `v16f32` for `<16 x float>`."""
    if type_name.startswith("<"):
        lanes, _, element = type_name[1:-1].partition(" x ")
        return f"v{lanes}{suffix(element)}"
    return _SUFFIX.get(type_name, type_name)


def literal(value: int | float | bool, dtype: DType, lanes: int = 1) -> Value:
    """A constant of `dtype` in every lane, as a value; narrow floats are rounded."""
    return _literal(value, math.copysign(1, value), dtype, lanes)


@functools.cache
def _literal(value: int | float | bool, _sign: float, dtype: DType, lanes: int) -> Value:
    # `_sign` keeps 0.0 and -0.0 apart in the cache.
    value = _held(value, dtype)
    scalar = _scalar(value, dtype)
    if lanes == 1:
        return Value(scalar, dtype, 1, value)
    return Value(f"splat ({_IN_REGISTER[dtype]} {scalar})", dtype, lanes, value)


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


def _scalar(value: int | float | bool, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(value)
    return float_literal(float(value), double=dtype is DType.F64)


def float_literal(value: float, *, double: bool = False) -> str:
    """A floating literal, as the hexadecimal bits of a double that LLVM asks for."""
    value = value if double else _single(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _single(value: float) -> float:
    """The f32 next to a number."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded
