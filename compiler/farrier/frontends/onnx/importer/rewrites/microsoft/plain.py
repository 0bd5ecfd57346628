"""Rewrite small operators of com.microsoft to one or a few of ONNX's operators."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number
from farrier.ops import NotSupported
from farrier.ops.operator import normal_axis


def _as_onnx(op: str) -> Upgrade:
    """Return the rewrite to ONNX's operator `op`, which has the same inputs, outputs and
    attributes."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        return [RawNode(op, node.inputs, node.outputs, node.attrs, node.origin)]

    return rule


def pad(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Pad as ONNX's Pad; the amounts may be a matrix of one row."""
    p = Parts(node, scope)
    inputs = [p.input(0), p.reshape(p.input(1), -1)]
    if p.input(2):
        inputs.append(p.reshape(p.input(2)))
    return [RawNode("Pad", inputs, node.outputs, node.attrs, node.origin)]


def range_(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Range as ONNX's Range. The step may be omitted, and operands may be vectors of one
    element."""
    p = Parts(node, scope)
    operands = [p.reshape(name) for name in node.inputs[:2]]
    operands.append(p.reshape(p.input(2)) if p.input(2) else p.number(1))
    return [RawNode("Range", operands, node.outputs, {}, node.origin)]


def expand_dims(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ExpandDims: a new axis, whose position may be computed at run time."""
    p = Parts(node, scope)
    axis = scope.data(p.input(1))
    if axis is not None:
        return p.results(p.unsqueeze(p.input(0), int(axis.item())))
    shape = p.shape(p.input(0))
    place = p("Cast", p.reshape(p.input(1)), to="i64")
    is_negative = p("Less", place, p.whole(0))
    place = p("Where", is_negative, p("Add", place, p.whole(len(shape) + 1)), place)
    at = p.ints(*range(len(shape) + 1))
    wanted = p("Where", p("Less", at, place), p.ints(*shape, 1), p.ints(1, *shape))
    wanted = p("Where", p("Equal", at, place), p.whole(1), wanted)
    return [RawNode("Reshape", [p.input(0), wanted], node.outputs, {}, node.origin)]


def unique(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Unique to ONNX's Unique in order of first occurrence, without the output of first
    indices."""
    first, *rest = (*node.outputs, "", "")[:3]
    outputs = [first, scope.fresh(), *(name or scope.fresh() for name in rest)]
    return [RawNode("Unique", node.inputs, outputs, {"sorted": 0}, node.origin)]


def distances(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite CDist: the distance of each row of one matrix to each row of another."""
    p = Parts(node, scope)
    metric = str(node.attrs.get("metric", "sqeuclidean"))
    if metric not in ("euclidean", "sqeuclidean"):
        raise NotSupported(f"metric {metric!r}")
    apart = p("Sub", p.unsqueeze(p.input(0), 1), p.unsqueeze(p.input(1), 0))
    squares = p("ReduceSumSquare", apart, p.ints(2), keepdims=0)
    return p.results(p("Sqrt", squares) if metric == "euclidean" else squares)


def unfold(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite UnfoldTensor: windows along an axis, whose elements form a new last axis."""
    p = Parts(node, scope)
    shape, size = p.shape(p.input(0)), int(node.attrs["size"])
    axis, step = normal_axis(int(node.attrs.get("dim", -1)), len(shape)), int(node.attrs["step"])
    count = (number(shape[axis]) - size) // step + 1
    at = np.arange(count)[:, None] * step + np.arange(size)
    windows = p("Gather", p.input(0), p.array(at), axis=axis)
    order = [a for a in range(len(shape) + 1) if a != axis + 1]
    return p.results(p.transpose(windows, *order, axis + 1))


def conv_transpose(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ConvTransposeWithDynamicPads: ConvTranspose whose pads are an input."""
    p, attrs = Parts(node, scope), dict(node.attrs)
    inputs = [*node.inputs[:2], *filter(None, [node.input(3)])]
    data = scope.data(node.input(2)) if node.input(2) else np.zeros(0)
    if data is not None:
        if data.size:
            attrs["pads"] = tuple(map(int, data.reshape(-1)))
        return [RawNode("ConvTranspose", inputs, node.outputs, attrs, node.origin)]
    unpadded = p("ConvTranspose", *inputs, **attrs)  # The pads are sliced off below.
    spatial = p.shape(unpadded)[2:]
    starts = p.cut(p.input(2), 0, len(spatial), 0)
    ends = p("Sub", p.ints(*spatial), p.cut(p.input(2), len(spatial), 2 * len(spatial), 0))
    axes = p.ints(*range(2, 2 + len(spatial)))
    return [RawNode("Slice", [unpadded, starts, ends, axes], node.outputs, {}, node.origin)]


def no_repeated_ngrams(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite NGramRepeatBlock: −∞ for each token that would complete an n-gram which occurred
    before."""
    p = Parts(node, scope)
    tokens, scores, size = p.input(0), p.input(1), int(node.attrs["ngram_size"])
    p.dtype = scope.dtype(scores)
    length = p.shape(tokens)[1]
    if isinstance(length, int) and length < size:
        return p.results(scores)
    windows = length - size + 1
    last = p.cut(tokens, size - 1, length, 1)  # The last token of each window.
    occurs = ""
    for place in range(size - 1):
        here = p.cut(tokens, place, place + windows, 1)
        ending = p.cut(tokens, windows + place, windows + place + 1, 1)
        same = p("Equal", here, ending)
        occurs = p("And", occurs, same) if occurs else same
    infinite = p.number(float("-inf"))
    shape = p.ints(*p.shape(last))
    lowered = p("Expand", infinite, shape)
    if occurs:
        lowered = p("Where", occurs, infinite, p.number(float("inf")))
    return p.results(p("ScatterElements", scores, last, lowered, axis=1, reduction="min"))


RULES: dict[str, Upgrade] = {
    "GatherND": _as_onnx("GatherND"),
    "Inverse": _as_onnx("Inverse"),
    "SampleOp": _as_onnx("Identity"),
    "Trilu": _as_onnx("Trilu"),
    "Pad": pad,
    "Range": range_,
    "ExpandDims": expand_dims,
    "Unique": unique,
    "CDist": distances,
    "UnfoldTensor": unfold,
    "ConvTransposeWithDynamicPads": conv_transpose,
    "NGramRepeatBlock": no_repeated_ngrams,
}
