"""Operators on tensors of one scale each → floats, dequantized before and quantized after."""

from __future__ import annotations

from farrier.importer.raw import RawNode
from farrier.importer.rewrites.quantized import (
    as_float,
    dequantize,
    integer_product,
    is_zero,
    number_of,
    qlinear_conv,
    quantize,
    real,
    requantized,
    shaped,
)
from farrier.importer.scope import ImportScope, Upgrade, ints
from farrier.ir.types import DType, Shape
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis


def _quantized(
    node: RawNode, value: str, scale: str, zero: str, like: DType, scope: ImportScope
) -> RawNode:
    """The node that quantizes a value with one scale, in the dtype of the operands."""
    to = scope.dtype(zero) if zero else like
    if to is not like:
        raise Mismatch(f"an operand is {like}, and the zero point of the result {to}")
    zeros = [] if is_zero(zero, scope) else [shaped(zero, (), scope)]
    attrs = {"to": str(to), "precision": str(DType.F32), "saturate": 1}
    inputs = [value, shaped(scale, (), scope), *zeros]
    return RawNode("QuantizeLinear", inputs, node.outputs, attrs, node.origin)


def _qlinear_binary(op: str) -> Upgrade:
    """Two operands dequantized, the operator, the result quantized."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale = node.inputs[:7]
        operands = (real(a, a_scale, a_zero, scope), real(b, b_scale, b_zero, scope))
        value = scope.add(op, *operands)
        return [_quantized(node, value, y_scale, node.input(7), scope.dtype(a), scope)]

    return rule


def _qlinear_unary(op: str) -> Upgrade:
    """One operand dequantized, the operator, the result quantized."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        x, x_scale, x_zero, y_scale = node.inputs[:4]
        attrs, shape = dict(node.attrs), scope.shape(x)
        last = attrs.pop("channels_last", 0)
        if op == "Softmax":
            _since_thirteen(attrs, shape)
        value = real(x, x_scale, x_zero, scope)
        if last:
            value = scope.add(
                "Transpose", value, perm=(0, len(shape) - 1, *range(1, len(shape) - 1))
            )
        value = scope.add(op, value, **attrs)
        if last:
            value = scope.add("Transpose", value, perm=(0, *range(2, len(shape)), 1))
        return [_quantized(node, value, y_scale, node.input(4), scope.dtype(x), scope)]

    return rule


def _since_thirteen(attrs: dict[str, object], shape: Shape) -> None:
    """Refuses what Softmax meant before opset 13, where that differs: whole rows of a matrix."""
    version = attrs.pop("opset", 13)
    axis = normal_axis(int(str(attrs.get("axis", -1))), len(shape))
    if int(str(version)) < 13 and any(n != 1 for n in shape[axis + 1 :]):
        raise NotSupported("softmax of opset 12 over several axes")


def qlinear_where(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Both branches dequantized, the chosen one quantized."""
    condition, x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = node.inputs
    branches = (real(x, x_scale, x_zero, scope), real(y, y_scale, y_zero, scope))
    value = scope.add("Where", condition, *branches)
    return [_quantized(node, value, scale, zero, scope.dtype(x), scope)]


def qlinear_concat(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Each part quantized anew, and joined."""
    scale, zero, *rest = node.inputs
    parts = []
    for x, x_scale, x_zero in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        value = real(x, x_scale, x_zero, scope)
        made = _quantized(node, value, scale, zero, scope.dtype(x), scope)
        parts.append(scope.add(made.op, *made.inputs, **made.attrs))
    return [RawNode("Concat", parts, node.outputs, node.attrs, node.origin)]


def qgemm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """α (A − a₀)(B − b₀) + C, with C in i32 of scale α a b; quantized again, or as floats."""
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
    """The mean over axes of a dequantized tensor, quantized."""
    x, x_scale, x_zero, y_scale = node.inputs[:4]
    axes = scope.constant(ints(node.attrs.get("axes", ())))
    value = real(x, x_scale, x_zero, scope)
    mean = scope.add("ReduceMean", value, axes, keepdims=node.attrs.get("keepdims", 1))
    return [_quantized(node, mean, y_scale, node.input(4), scope.dtype(x), scope)]


RULES: dict[str, Upgrade] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "QLinearConv": qlinear_conv,
    "QLinearAdd": _qlinear_binary("Add"),
    "QLinearMul": _qlinear_binary("Mul"),
    "QLinearLeakyRelu": _qlinear_unary("LeakyRelu"),
    "QLinearSigmoid": _qlinear_unary("Sigmoid"),
    "QLinearSoftmax": _qlinear_unary("Softmax"),
    "QLinearAveragePool": _qlinear_unary("AveragePool"),
    "QLinearGlobalAveragePool": _qlinear_unary("GlobalAveragePool"),
    "QLinearReduceMean": qlinear_reduce_mean,
    "QLinearWhere": qlinear_where,
    "QLinearConcat": qlinear_concat,
    "QGemm": qgemm,
}
