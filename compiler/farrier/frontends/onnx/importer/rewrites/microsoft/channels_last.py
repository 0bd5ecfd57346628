"""Rewrite operators on NHWC images to transposed operators on NCHW images."""

from __future__ import annotations

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.products import fused_conv
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade


def _channels_last(op: str, images: tuple[int, ...], rewrite: Upgrade | None = None) -> Upgrade:
    """Return a rewrite for the NHWC form of operator `op`, which transposes the inputs at the
    positions `images` to NCHW and the output back. `rewrite` is applied to the operator in between.
    """

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        rank, inputs = len(scope.shape(node.inputs[0])), list(node.inputs)
        for position in images:
            if node.input(position):
                forth = (0, rank - 1, *range(1, rank - 1))
                inputs[position] = scope.add("Transpose", inputs[position], perm=forth)
        inner = RawNode(op, inputs, [scope.fresh()], node.attrs, node.origin)
        back = {"perm": (0, *range(2, rank), 1)}
        return [
            *(rewrite(inner, opset, scope) if rewrite else [inner]),
            RawNode("Transpose", inner.outputs, node.outputs, back, node.origin),
        ]

    return rule


RULES: dict[str, Upgrade] = {
    "NhwcConv": _channels_last("Conv", (0,)),
    "NhwcFusedConv": _channels_last("FusedConv", (0, 3), fused_conv),
    "NhwcMaxPool": _channels_last("MaxPool", (0,)),
}
