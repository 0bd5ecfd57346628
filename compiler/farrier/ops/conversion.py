"""Cast: ONNX's conversions between element types, put together from the IR's."""

from __future__ import annotations

import numpy as np

from farrier.ir.narrow import FORMATS
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.ops import symbolic
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, Types, always
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, cast, maximum, minimum, unequal, where
from farrier.ops.traits import Trait

# The numbers of an F8E8M0, all powers of two.
_LEAST_POWER, _GREATEST_POWER = 2.0**-127, 2.0**127


def saturates(dtype: DType) -> bool:
    """Check whether the attribute `saturate` applies to conversions to `dtype`."""
    return dtype.is_float and dtype.bits == 8


def whole(x: Scalar, dtype: DType) -> Scalar:
    """Convert a float to an integer type, rounding towards zero.

    NaN and numbers beyond the range of int32 (for int64 results: of int64) become the least int32
    or int64, as the conversion instructions of x86-64 do. A type of less than 32 bits takes the low
    bits of the int32, an unsigned type of 32 or 64 bits the low bits of the int64. The C standard
    leaves these cases undefined; ONNX Runtime's results are those of its compiler.
    """
    if x.dtype.bits < 32:
        x = cast(x, DType.F32)
    if dtype in _DIRECT:
        beyond = 2.0 ** (dtype.bits - 1)
        # Below the range the conversion itself saturates at the least number.
        return where(x < beyond, cast(x, dtype), dtype.limits[0])
    if dtype is DType.U64:
        return where(x < 2.0**63, cast(whole(x, DType.I64), dtype), cast(x, dtype))
    return cast(whole(x, DType.I64 if dtype is DType.U32 else DType.I32), dtype)


def np_whole(x: Array, dtype: DType) -> Array:
    """Do the conversion of `whole` in numpy: floats to an integer type, with the same results."""
    if dtype in _DIRECT:
        wide = convert(x, DType.F64)
        beyond = 2.0 ** (dtype.bits - 1)
        is_held = (wide >= -beyond) & (wide < beyond)
        truncated = np.where(is_held, wide, 0.0).astype(dtype.numpy)
        return np.where(is_held, truncated, dtype.numpy.type(dtype.limits[0]))
    if dtype is DType.U64:
        low = np_whole(x, DType.I64).astype(np.uint64)
        return np.where(convert(x, DType.F64) < 2.0**63, low, convert(x, dtype))
    return convert(np_whole(x, DType.I64 if dtype is DType.U32 else DType.I32), dtype)


_DIRECT = (DType.I32, DType.I64)  # The types to which processors have instructions from floats.


def converted(x: Scalar, dtype: DType, saturate: bool = False, rounding: str = "") -> Scalar:
    """Convert `x` to `dtype` by the rules of ONNX's Cast.

    Floats are converted to integers by `whole`. A number beyond the range of an 8-bit float,
    infinity included, becomes its largest number with `saturate`, and infinity or NaN without.
    `rounding` is the direction of conversions to F8E8M0: "up", "down" or "nearest" (a tie goes to
    the larger power of two).
    """
    if dtype is x.dtype:
        return x
    if dtype is DType.BOOL:
        return unequal(x, 0)
    if dtype.is_integer and x.dtype.is_float:
        return whole(x, dtype)
    if not saturates(dtype):
        return cast(x, dtype)
    if x.dtype.bits <= 16:
        x = cast(x, DType.F32)
    elif not x.dtype.is_float:
        x = cast(x, DType.F64)
    if dtype is DType.F8E8M0:
        return cast(_power_of_two(cast(x, DType.F32), saturate, rounding), dtype)
    if saturate:
        limit = FORMATS[dtype].maximum
        x = minimum(maximum(x, -limit), limit)
    return cast(x, dtype)


def _power_of_two(x: Scalar, saturate: bool, rounding: str) -> Scalar:
    if saturate:
        x = minimum(maximum(x, _LEAST_POWER), _GREATEST_POWER)
    else:
        x = where(x < _LEAST_POWER, cast(x, x.dtype) * np.nan, x)
    nearest = cast(cast(x, DType.F8E8M0), DType.F32)
    if rounding == "up":
        return where(nearest < x, nearest * 2, nearest)
    return where(nearest > x, nearest * 0.5, nearest) if rounding == "down" else nearest


def np_converted(x: Array, dtype: DType, saturate: bool = False, rounding: str = "") -> Array:
    """Do the conversion of `converted` in numpy, with the same results."""
    source = DType.from_numpy(x.dtype)
    if dtype is source:
        return x
    if dtype.is_integer and source.is_float:
        return np_whole(x, dtype)
    if not saturates(dtype):
        return convert(x, dtype)
    if dtype is DType.F8E8M0:
        return convert(_np_power_of_two(convert(x, DType.F32), saturate, rounding), dtype)
    if saturate:
        limit = FORMATS[dtype].maximum
        wide = (
            convert(x, DType.F32)
            if source.bits <= 32 and source.is_float
            else convert(x, DType.F64)
        )
        x = np.clip(wide, -limit, limit)
    return convert(x, dtype)


def _np_power_of_two(x: Array, saturate: bool, rounding: str) -> Array:
    if saturate:
        x = np.clip(x, np.float32(_LEAST_POWER), np.float32(_GREATEST_POWER))
    else:
        x = np.where(x < _LEAST_POWER, np.float32(np.nan), x)
    nearest = convert(x, DType.F8E8M0).astype(np.float32)
    if rounding == "up":
        return np.where(nearest < x, nearest * np.float32(2), nearest)
    down = np.where(nearest > x, nearest * np.float32(0.5), nearest)
    return down if rounding == "down" else nearest


def _target(types: Types, attrs: Attrs) -> DType:
    if attrs.get("round_mode", "up") not in ("up", "down", "nearest"):
        raise Mismatch(f"round_mode {attrs['round_mode']!r} is none of up, down, nearest")
    return DType(str(attrs["to"]))


def _rules(attrs: Attrs) -> tuple[DType, bool, str]:
    """Return the target dtype, `saturate` and the rounding direction. A Cast that a pass inserted
    lacks the last two attributes, so defaults apply.
    """
    return (
        DType(str(attrs["to"])),
        bool(attrs.get("saturate", 0)),
        str(attrs.get("round_mode", "")),
    )


CAST = pointwise(
    "Cast",
    lambda attrs, x: converted(x, *_rules(attrs)),
    lambda attrs, x: np_converted(x, *_rules(attrs)),
    result=_target,
    traits=Trait.EXACT | Trait.PACKED,
    copies=always,
    symbolic=symbolic.convert,
    derivative=lambda s: [s("Cast", s.by, to=str(s.kinds[0].dtype))],
)
OPERATORS: tuple[Operator, ...] = (CAST,)
