"""Rewrite operators on tensors with a single scale to operators on floats between dequantization
and quantization."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.quantized import (
    as_float,
    centred,
    dequantize,
    integer_product,
    is_zero,
    number_of,
    qlinear_conv,
    quantize,
    real,
    requantized,
    shaped,
    sums,
)
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import product
from farrier.ir.types import DType
from farrier.ops import Mismatch
from farrier.ops.operator import normal_axis

# Every finite product is at least this, so the comparison with it changes nothing.
_LEAST = float(np.finfo(np.float32).min)


def _quantized(
    node: RawNode, value: str, scale: str, zero: str, like: DType, scope: ImportScope, **how: int
) -> RawNode:
    """Return the QuantizeLinear node that converts the float `value` to the node's result. Raises
    Mismatch unless the zero point has the dtype `like`, that of the operands. `how` are additional
    attributes."""
    to = _dtype_of_result(zero, like, scope)
    zeros = [] if is_zero(zero, scope) else [shaped(zero, (), scope)]
    attrs = {"to": str(to), "precision": str(DType.F32), "saturate": 1, **how}
    inputs = [value, shaped(scale, (), scope), *zeros]
    return RawNode("QuantizeLinear", inputs, node.outputs, attrs, node.origin)


def _dtype_of_result(zero: str, like: DType, scope: ImportScope) -> DType:
    """Return the dtype of a quantized result, which is that of its zero point. Raises Mismatch if
    it is not `like`, the dtype of the operands."""
    to = scope.dtype(zero) if zero else like
    if to is not like:
        raise Mismatch(f"an operand is {like}, and the zero point of the result {to}")
    return to


def _rounded(node: RawNode, value: str, zero: str, like: DType, scope: ImportScope) -> RawNode:
    """Return the node that adds the zero point to `value` and then rounds, with ties to even. ONNX
    Runtime rounds in this order in sums, products and pools."""
    return _quantized(node, value, number_of(1, scope), zero, like, scope, zero_first=1)


def _apart(product: str, scope: ImportScope) -> str:
    """Return a value equal to `product` that cannot be fused with a later addition: the maximum of
    the product and the lowest float. The product is then rounded before the addition, as in ONNX
    Runtime."""
    return scope.add("Max", product, number_of(_LEAST, scope))


def _scalars(names: Iterable[str], scope: ImportScope) -> list[str]:
    """Reshape scales and zero points to scalars; omitted zero points stay ""."""
    return [shaped(name, (), scope) if name else "" for name in names]


def qlinear_add(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearAdd: a (α/γ) + (b (β/γ) + (c₀ − a₀ α/γ − b₀ β/γ)), rounded, for scales α, β, γ
    of a, b and the result, and zero points a₀, b₀, c₀."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale = node.inputs[:7]
    a_scale, b_scale, scale = _scalars((a_scale, b_scale, scale), scope)
    left, right = (scope.add("Div", own, scale) for own in (a_scale, b_scale))
    _dtype_of_result(node.input(7), scope.dtype(a), scope)
    own, *others = (
        as_float(shaped(zero, (), scope), scope) if zero else number_of(0, scope)
        for zero in (node.input(7), a_zero, b_zero)
    )
    moved = scope.add("Add", *(map(functools.partial(scope.add, "Mul"), (left, right), others)))
    terms = [scope.add("Mul", as_float(x, scope), ratio) for x, ratio in ((a, left), (b, right))]
    rest = scope.add("Add", terms[1], scope.add("Sub", own, moved))
    return [_rounded(node, scope.add("Add", terms[0], rest), "", scope.dtype(a), scope)]


def qlinear_mul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearMul: (a − a₀) (b − b₀) (α β / γ) + c₀, rounded, for scales α, β, γ of a, b and
    the result, and zero points a₀, b₀, c₀."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale = node.inputs[:7]
    a_scale, b_scale, scale = _scalars((a_scale, b_scale, scale), scope)
    factors = [
        as_float(centred(x, zero, (), scope), scope) for x, zero in ((a, a_zero), (b, b_zero))
    ]
    ratio = scope.add("Div", scope.add("Mul", a_scale, b_scale), scale)
    value = scope.add("Mul", scope.add("Mul", *factors), ratio)
    return [_rounded(node, _apart(value, scope), node.input(7), scope.dtype(a), scope)]


def qlinear_average_pool(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearAveragePool: the means of a dequantized image, quantized."""
    x, x_scale, x_zero, scale = node.inputs[:4]
    attrs, rank = dict(node.attrs), len(scope.shape(x))
    is_last = attrs.pop("channels_last", 0)
    value = _apart(real(x, x_scale, x_zero, scope), scope)
    if is_last:
        value = scope.add("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))
    value = scope.add("AveragePool", value, **attrs)
    if is_last:
        value = scope.add("Transpose", value, perm=(0, *range(2, rank), 1))
    return [_quantized(node, value, scale, node.input(4), scope.dtype(x), scope, zero_first=1)]


def qlinear_global_average_pool(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearGlobalAveragePool: the sum of an image in i32, minus its zero points, times
    one factor. The zero point of the result is added after rounding."""
    x, x_scale, x_zero, scale = node.inputs[:4]
    shape, is_last = scope.shape(x), node.attrs.get("channels_last", 0)
    axes = range(1, len(shape) - 1) if is_last else range(2, len(shape))
    total = sums(centred(x, x_zero, (), scope), axes, 1, scope)
    count = as_float(scope.constant(ints(product(shape[axis] for axis in axes))), scope)
    x_scale, scale = _scalars((x_scale, scale), scope)
    factor = scope.add("Div", x_scale, scope.add("Mul", scale, count))
    value = scope.add("Mul", as_float(total, scope), factor)
    return [_quantized(node, value, number_of(1, scope), node.input(4), scope.dtype(x), scope)]


def _qlinear_unary(op: str) -> Upgrade:
    """Return the rewrite of a unary operator: dequantize, apply `op`, quantize."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        x, x_scale, x_zero, y_scale = node.inputs[:4]
        value = scope.add(op, real(x, x_scale, x_zero, scope), **node.attrs)
        return [_quantized(node, value, y_scale, node.input(4), scope.dtype(x), scope)]

    return rule


def qlinear_softmax(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearSoftmax: the softmax of a dequantized tensor along an axis, or if the
    attribute `opset` is below 13, over that and all later axes."""
    x, x_scale, x_zero, y_scale = node.inputs[:4]
    shape, version = scope.shape(x), int(node.attrs.get("opset", 13))
    axis = normal_axis(int(node.attrs.get("axis", -1)), len(shape))
    value = real(x, x_scale, x_zero, scope)
    if version >= 13:
        value = scope.add("Softmax", value, axis=axis)
    else:
        rows = scope.constant(ints([product(shape[:axis]), product(shape[axis:])]))
        value = scope.add("Softmax", scope.add("Reshape", value, rows), axis=-1)
        value = scope.add("Reshape", value, scope.constant(ints(shape)))
    return [_quantized(node, value, y_scale, node.input(4), scope.dtype(x), scope)]


def qlinear_where(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearWhere: dequantize both operands, select, and quantize."""
    condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = node.inputs
    branches = (real(x, x_scale, x_zero, scope), real(y, y_scale, y_zero, scope))
    value = scope.add("Where", condition, *branches)
    return [_quantized(node, value, scale, zero, scope.dtype(x), scope)]


def qlinear_concat(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearConcat: requantize each operand, and concatenate."""
    scale, zero, *rest = node.inputs
    parts = []
    for x, x_scale, x_zero in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        value = real(x, x_scale, x_zero, scope)
        part = _quantized(node, value, scale, zero, scope.dtype(x), scope)
        parts.append(scope.add(part.op, *part.inputs, **part.attrs))
    return [RawNode("Concat", parts, node.outputs, node.attrs, node.origin)]


def qgemm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QGemm: α (A − a₀)(B − b₀) + C, where C is i32 with scale α a b for the scales a and
    b. The result is quantized if the node has a scale for it, else it is float."""
    a, a_scale, a_zero, b, b_scale, b_zero = node.inputs[:6]
    if node.attrs.get("transA", 0):
        a = scope.add("Transpose", a, perm=(1, 0))
    if node.attrs.get("transB", 0):
        b = scope.add("Transpose", b, perm=(1, 0))
    total = integer_product(a, b, a_zero, b_zero, scope)
    if node.input(6):
        total = scope.add("Add", total, node.input(6))
    alpha = number_of(node.attrs.get("alpha", 1.0), scope)
    factor = scope.add("Mul", shaped(a_scale, (), scope), alpha)
    factor = scope.add("Mul", factor, shaped(b_scale, (1, -1), scope))
    if node.input(7):
        scale, zero = shaped(node.input(7), (), scope), node.input(8)
        zero = shaped(zero, (), scope) if zero else ""
        return requantized(node, total, factor, scale, zero, scope.dtype(a), scope)
    return [RawNode("Mul", [as_float(total, scope), factor], node.outputs, {}, node.origin)]


def qlinear_reduce_mean(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QLinearReduceMean: the mean over axes of a dequantized tensor, quantized."""
    x, x_scale, x_zero, y_scale = node.inputs[:4]
    axes = scope.constant(ints(node.attrs.get("axes", ())))
    value = real(x, x_scale, x_zero, scope)
    mean = scope.add("ReduceMean", value, axes, keepdims=node.attrs.get("keepdims", 1))
    return [_quantized(node, mean, y_scale, node.input(4), scope.dtype(x), scope)]


RULES: dict[str, Upgrade] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "QLinearConv": qlinear_conv,
    "QLinearAdd": qlinear_add,
    "QLinearMul": qlinear_mul,
    "QLinearLeakyRelu": _qlinear_unary("LeakyRelu"),
    "QLinearSigmoid": _qlinear_unary("Sigmoid"),
    "QLinearSoftmax": qlinear_softmax,
    "QLinearAveragePool": qlinear_average_pool,
    "QLinearGlobalAveragePool": qlinear_global_average_pool,
    "QLinearReduceMean": qlinear_reduce_mean,
    "QLinearWhere": qlinear_where,
    "QLinearConcat": qlinear_concat,
    "QGemm": qgemm,
}
