"""The pass `merge-groups`, which widens the groups of grouped convolutions to the width of
vectors."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import TensorType
from farrier.ops import Product, product_of
from farrier.passes.rewriting import Rewriter, derived
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes.channel_blocks import channel_block, merging
from farrier.targets.cpu.target import as_cpu

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]


def merge_groups(graph: Graph, settings: Settings) -> Graph:
    """Merge up to 8 neighbouring groups of a convolution whose groups do not fill blocks of
    channels; the merged weights are zero where an output does not depend on an input. Remaining
    groups become a separate convolution. Depthwise convolutions stay unchanged, and so do
    floating-point convolutions if `max_layer_error` is 0, because zero times infinity would add a
    NaN.

    before:
        @graph
        def g(x: f32[1, 4, 3, 3]):
            w: f32[4, 2, 1, 1] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            y: f32[1, 4, 3, 3] = Conv(x, w, group=2)
            return y

    after:
        @graph
        def g(x: f32[1, 4, 3, 3]):
            w: f32[4, 2, 1, 1] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            w_merged: f32[4, 4, 1, 1] = constant([1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 0.0, 0.0, 7.0, 8.0])
            y: f32[1, 4, 3, 3] = Conv(x, w_merged, group=1)
            return y
    """  # noqa: E501
    floats, rewriter = settings.precision.dtype, Rewriter(graph)
    block = channel_block(graph, as_cpu(settings.target), merges=True, floats=floats)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        for replacement in _merged(node, rewriter, block, settings.max_layer_error > 0):
            rewriter.emit(replacement)
    return rewriter.finish()


def _merged(node: Node, rewriter: Rewriter, block: int, floats: bool) -> tuple[Node, ...]:
    group = int(node.attr("group", 1)) if product_of(node) is Product.CONVOLUTION else 1
    if group == 1 or node.inputs[0] is None or node.inputs[0].type.rank > 4:
        return (node,)
    x, w, *rest = node.inputs
    bias = rest[0] if rest else None
    weights, biases = rewriter.constant_of(w), rewriter.constant_of(bias)
    if w is None or weights is None or (bias is not None and biases is None):
        return (node,)
    channels, inputs, *_ = weights.value.type.static_shape
    outputs = channels // group
    is_depthwise = inputs == outputs == 1
    merge = None if is_depthwise else merging(group, outputs, inputs, block)
    if merge is None or merge.count == 1 or not (floats or w.type.dtype.is_integer):
        return (node,)
    whole = group - merge.rest
    if not merge.rest:
        merged_weights = _packed(weights, slice(None), merge.count, outputs, rewriter)
        attrs = attributes(**{**dict(node.attrs), "group": group // merge.count})
        return (dataclasses.replace(node, inputs=(x, merged_weights, *rest), attrs=attrs),)
    parts, nodes = list[Value](), list[Node]()
    for first, last, count in ((0, whole, merge.count), (whole, group, merge.rest)):
        part = slice(first * outputs, last * outputs)
        read = _channels(node.inputs[0], first * inputs, last * inputs, rewriter)
        operands = [read.outputs[0], _packed(weights, part, count, outputs, rewriter)]
        if bias is not None and biases is not None:
            operands.append(rewriter.constant(biases.data[part], bias.name))
        y = node.outputs[0]
        written = Value(rewriter.fresh(y.name), _of_channels(y.type, (last - first) * outputs))
        attrs = attributes(**{**dict(node.attrs), "group": (last - first) // count})
        nodes += [read, Node("Conv", tuple(operands), (written,), attrs, origin=node.origin)]
        parts.append(written)
    return (*nodes, Node("Concat", tuple(parts), node.outputs, attributes(axis=1)))


def _packed(weights: Constant, part: slice, count: int, outputs: int, rewriter: Rewriter) -> Value:
    """Return the weights for the output channels `part`, with every `count` groups of `outputs`
    channels merged to one."""
    type = weights.value.type
    channels, inputs, *kernel = type.static_shape
    first, last, _ = part.indices(channels)
    shape = (last - first, inputs * count, *kernel)
    of_part = functools.partial(_block_diagonal, part=part, count=count, outputs=outputs)
    key = f"outputs {first} to {last} of groups of {outputs}, {count} merged"
    kind = TensorType(type.dtype, shape)
    return rewriter.constant(
        derived(kind, (weights,), of_part, key), f"{weights.value.name}_merged"
    )


def _block_diagonal(weights: Array, part: slice, count: int, outputs: int) -> Array:
    """Return grouped weights [oc, ic, kernel…] as block-diagonal weights [oc, count · ic, kernel…]
    of merged groups."""
    taken = weights[part]
    _, inputs, *kernel = taken.shape
    shape = (len(taken) // (count * outputs), count, outputs, count, inputs, *kernel)
    merged = np.zeros(shape, weights.dtype)
    groups = taken.reshape(shape[0], count, outputs, inputs, *kernel)
    for each in range(count):
        merged[:, each, :, each] = groups[:, each]
    return merged.reshape(len(taken), count * inputs, *kernel)


def _channels(x: Value, first: int, last: int, rewriter: Rewriter) -> Node:
    bounds = [
        rewriter.constant(np.array([n], np.int64), f"{x.name}_{hint}")
        for hint, n in (("first", first), ("last", last), ("axis", 1))
    ]
    cut = Value(rewriter.fresh(f"{x.name}_channels"), _of_channels(x.type, last - first))
    return Node("Slice", (x, *bounds), (cut,))


def _of_channels(type: TensorType, channels: int) -> TensorType:
    return dataclasses.replace(type, shape=(type.shape[0], channels, *type.shape[2:]))
