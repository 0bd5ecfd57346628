"""Rewrite fused matrix products and convolutions to unfused nodes."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ops import Mismatch


def _factor(p: Parts, x: str, side: str) -> str:
    """Return an operand of FusedMatMul transposed to the form of MatMul's operands.

    The attributes `transBatchA`, `transA` and the same for B apply to the operand with the letter
    `side`. With `transBatch`, the operand is [m, b…, k] for rows m and batch axes b, and is
    transposed to [b…, m, k]. Then, with `trans`, the last two axes are swapped.
    """
    rank = len(p.shape(x))
    order = list(range(rank))
    is_turned = p.attrs.get(f"trans{side}", 0) and rank > 1
    if p.attrs.get(f"transBatch{side}", 0):
        if rank < 3:
            raise Mismatch(f"transBatch{side} takes an operand of rank 3 or more, not {rank}")
        order = [*range(1, rank - 1), 0, rank - 1]
    if is_turned:
        order[-2:] = reversed(order[-2:])
    return x if order == sorted(order) else p.transpose(x, *order)


def fused_matmul(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite FusedMatMul: a product of transposed operands, scaled by alpha, and an activation."""
    p = Parts(node, scope)
    product = p("MatMul", _factor(p, p.input(0), "A"), _factor(p, p.input(1), "B"))
    alpha = float(node.attrs.get("alpha", 1.0))
    return p.results(p.activated(product if alpha == 1 else p("Mul", product, p.number(alpha))))


def fused_gemm(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite FusedGemm: Gemm and an activation."""
    p = Parts(node, scope)
    return p.results(p.activated(p("Gemm", *node.inputs, **_plain(node))))


def fused_conv(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite FusedConv: a convolution, a sum and an activation."""
    p = Parts(node, scope)
    convolution = p("Conv", *node.inputs[:3], **_plain(node))
    return p.results(p.activated(p.sum(convolution, p.input(3))))


def _plain(node: RawNode) -> dict[str, object]:
    """Return the node's attributes without those of the fused activation."""
    return {k: v for k, v in node.attrs.items() if not k.startswith("activation")}


RULES: dict[str, Upgrade] = {
    "FusedMatMul": fused_matmul,
    "TransposeMatMul": fused_matmul,
    "FusedMatMulActivation": fused_matmul,
    "FusedGemm": fused_gemm,
    "FusedConv": fused_conv,
}
