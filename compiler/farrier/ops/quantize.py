"""QuantizeLinear and DequantizeLinear; scale and zero point broadcast against x.

The importer reshapes scales per channel or per block to broadcast. Arithmetic is in f32.
"""

from __future__ import annotations

import numpy as np

from farrier.ir.expr import Const, UnaryOp
from farrier.ir.special import convert
from farrier.ir.types import DType
from farrier.ops.conversion import converted, np_converted
from farrier.ops.operator import Array, Attrs, Mismatch, Operator, Types, required
from farrier.ops.pointwise import pointwise
from farrier.ops.scalar import Scalar, cast, unary, where
from farrier.ops.traits import Trait


def _quantize(attrs: Attrs, x: Scalar, scale: Scalar, zero: Scalar | None = None) -> Scalar:
    """Compute saturate(round(x / scale) + zero), or saturate(round(x / scale + zero)) with the
    attribute `zero_first`, which only the importer sets. The quotient is rounded to `precision`. A
    NaN becomes the least integer, as in ONNX Runtime."""
    to, precision = DType(str(attrs["to"])), DType(str(attrs["precision"]))
    ratio = cast(x, DType.F32)
    if not isinstance(scale.expr, Const) or scale.expr.value != 1:
        ratio = ratio / cast(scale, DType.F32)
    ratio = cast(cast(ratio, precision), DType.F32)
    if zero is not None and attrs.get("zero_first"):
        ratio, zero = ratio + cast(zero, DType.F32), None
    if to.is_integer:
        ratio = unary(UnaryOp.ROUND, ratio)
    if zero is not None:
        ratio = ratio + cast(zero, DType.F32)
    if to.is_integer and to.is_signed:
        least = float(to.limits[0])
        ratio = where(ratio > least, ratio, least)  # A NaN compares false and becomes `least`.
    return cast(ratio, to) if to.is_integer else converted(ratio, to, bool(attrs["saturate"]))


def _np_quantize(attrs: Attrs, x: Array, scale: Array, zero: Array | None = None) -> Array:
    to, precision = DType(str(attrs["to"])), DType(str(attrs["precision"]))
    ratio = _f32(x) / _f32(scale)
    ratio = convert(convert(ratio, precision), DType.F32)
    if zero is not None and attrs.get("zero_first"):
        ratio, zero = ratio + _f32(zero), None
    if to.is_integer:
        ratio = np.rint(ratio)
    if zero is not None:
        ratio = ratio + _f32(zero)
    if to.is_integer:
        ratio = np.where(np.isnan(ratio), ratio.dtype.type(to.limits[0]), ratio)
    return convert(ratio, to) if to.is_integer else np_converted(ratio, to, bool(attrs["saturate"]))


def _dequantize(attrs: Attrs, x: Scalar, scale: Scalar, zero: Scalar | None = None) -> Scalar:
    """Compute (x − zero) · scale."""
    value = cast(x, DType.F32)
    if zero is not None:
        value = value - cast(zero, DType.F32)
    return cast(value * cast(scale, DType.F32), DType(str(attrs["to"])))


def _np_dequantize(attrs: Attrs, x: Array, scale: Array, zero: Array | None = None) -> Array:
    value = _f32(x) if zero is None else _f32(x) - _f32(zero)
    return convert(value * _f32(scale), DType(str(attrs["to"])))


def _f32(x: Array) -> Array:
    return convert(x, DType.F32)


def _quantized(types: Types, attrs: Attrs) -> DType:
    to = DType(str(attrs["to"]))
    if len(types) > 2 and required(types, 2).dtype is not to:
        raise Mismatch(f"the result is {to} and the zero point {required(types, 2).dtype}")
    return to


def _dequantized(types: Types, attrs: Attrs) -> DType:
    zero = required(types, 2).dtype if len(types) > 2 else required(types, 0).dtype
    # The zero points of MatMulNBits may be floats.
    if not zero.is_float and zero is not required(types, 0).dtype:
        raise Mismatch(
            f"the input is {required(types, 0).dtype} and the zero point {required(types, 2).dtype}"
        )
    return DType(str(attrs["to"]))


QUANTIZE = pointwise(
    "QuantizeLinear",
    _quantize,
    _np_quantize,
    result=_quantized,
    traits=Trait.EXACT | Trait.TIES,
    instructions=5,
)
DEQUANTIZE = pointwise(
    "DequantizeLinear",
    _dequantize,
    _np_dequantize,
    result=_dequantized,
    traits=Trait.EXACT | Trait.PACKED | Trait.DEQUANTIZES,
    instructions=3,
)
OPERATORS: tuple[Operator, ...] = (QUANTIZE, DEQUANTIZE)
