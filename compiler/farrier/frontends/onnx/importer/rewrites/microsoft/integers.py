"""Rewrite products of dynamically quantized tensors to integer products."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites import recurrence
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.quantized import (
    as_float,
    dynamically_quantized,
    integer_product,
    is_zero,
    shaped,
)
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number
from farrier.ir.types import DType


def dynamic_quantize_lstm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DynamicQuantizeLSTM to an LSTM in floats: the weights are dequantized and transposed.
    Activations, which ONNX Runtime quantizes at run time, are not quantized."""
    inputs = [*node.inputs, *[""] * (12 - len(node.inputs))]
    for position, scale, zero in ((1, 8, 9), (2, 10, 11)):
        directions = number(scope.shape(inputs[position])[0])
        shape = scope.constant(ints([directions, 1, -1]))
        parameters = [scope.add("Reshape", inputs[scale], shape)]
        if not is_zero(inputs[zero], scope):
            parameters.append(scope.add("Reshape", inputs[zero], shape))
        real = scope.add("DequantizeLinear", inputs[position], *parameters, to=str(DType.F32))
        inputs[position] = scope.add("Transpose", real, perm=(0, 2, 1))
    lstm = RawNode("LSTM", inputs[:8], node.outputs, node.attrs, node.origin)
    return recurrence.expand(lstm, scope)


def matmul_integer_to_float(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MatMulIntegerToFloat: the product of quantized matrices as floats, plus a bias."""
    a, b, a_scale, b_scale = node.inputs[:4]
    total = integer_product(a, b, node.input(4), node.input(5), scope)
    return _scaled(node, total, a_scale, b_scale, node.input(6), scope)


def matmul_integer16(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MatMulInteger16: the product of matrices of 16-bit integers, summed in i32."""
    total = integer_product(node.inputs[0], node.inputs[1], "", "", scope)
    return [RawNode("Identity", [total], node.outputs, {}, node.origin)]


def _scaled(
    node: RawNode, total: str, a_scale: str, b_scale: str, bias: str, scope: ImportScope
) -> list[RawNode]:
    """Return the node total · a_scale · b_scale + bias."""
    product = in_floats(total, a_scale, b_scale, scope)
    if not bias:
        return [RawNode("Identity", [product], node.outputs, {}, node.origin)]
    return [RawNode("Add", [product, bias], node.outputs, {}, node.origin)]


def in_floats(total: str, a_scale: str, b_scale: str, scope: ImportScope) -> str:
    """Return an integer product, [..., rows, columns], times the scales of its factors, as
    floats."""
    scales = [shaped(a_scale, (-1, 1), scope), shaped(b_scale, (1, -1), scope)]
    return scope.add("Mul", as_float(total, scope), scope.add("Mul", *scales))


def dynamic_quantize_matmul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DynamicQuantizeMatMul: the product of a matrix quantized at run time and a quantized
    one, as floats, plus a bias."""
    a, b, b_scale = node.inputs[:3]
    quantized, scale, zero = dynamically_quantized(a, scope)
    total = integer_product(quantized, b, zero, node.input(3), scope)
    return _scaled(node, total, scale, b_scale, node.input(4), scope)


RULES: dict[str, Upgrade] = {
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "MatMulInteger16": matmul_integer16,
    "MatMulIntegerToFloat": matmul_integer_to_float,
}
