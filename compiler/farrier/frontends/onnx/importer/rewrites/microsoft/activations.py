"""Rewrite fused activations and sums of ONNX Runtime to unfused nodes."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number, product
from farrier.ops.operator import normal_axis

_QUICK_ALPHA = 1.7020000219345093  # The default of ONNX Runtime's schema, 1.702 in f32.


def gelu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Gelu and BiasGelu by erf, and FastGelu by tanh."""
    p = Parts(node, scope)
    how = "tanh" if node.op.endswith("FastGelu") else "none"
    return p.results(p("Gelu", p.sum(p.input(0), p.input(1)), approximate=how))


def quick_gelu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite QuickGelu as x · sigmoid(alpha · x)."""
    p = Parts(node, scope)
    return p.results(swish(p, p.input(0), float(node.attrs.get("alpha", _QUICK_ALPHA))))


def swish(p: Parts, x: str, alpha: float = 1.0) -> str:
    """Add x · sigmoid(alpha · x)."""
    return p("Swish", x, alpha=alpha)


def bias_split_gelu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite BiasSplitGelu: the left half of a sum, times the Gelu of its right half."""
    p = Parts(node, scope)
    total = p.sum(p.input(0), p.input(1))
    width = number(scope.shape(total)[-1])
    left, right = p.cut(total, 0, width // 2, -1), p.cut(total, width // 2, width, -1)
    return p.results(p("Mul", left, p("Gelu", right, approximate="none")))


def bias_add(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite BiasAdd: the sum of an image, a bias and a skip connection."""
    p = Parts(node, scope)
    return p.results(p.sum(*node.inputs[:3]))


def bias_softmax(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite BiasSoftmax: the softmax of a sum over all axes from `axis` on."""
    p = Parts(node, scope)
    total = p.sum(p.input(0), p.input(1))
    shape = scope.shape(total)
    axis = normal_axis(int(node.attrs.get("axis", 1)), len(shape))
    if axis == len(shape) - 1:
        return p.results(p("Softmax", total, axis=-1))
    rows = p.reshape(total, product(shape[:axis]), product(shape[axis:]))
    return p.results(p.reshape(p("Softmax", rows, axis=-1), *shape))


RULES: dict[str, Upgrade] = {
    "Gelu": gelu,
    "FastGelu": gelu,
    "BiasGelu": gelu,
    "QuickGelu": quick_gelu,
    "BiasSplitGelu": bias_split_gelu,
    "BiasAdd": bias_add,
    "BiasSoftmax": bias_softmax,
}
