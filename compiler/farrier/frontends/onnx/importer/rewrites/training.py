"""Rewrite operators with a training mode: Dropout, and BatchNormalization with computed
statistics."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.random import seed_of
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.types import DType
from farrier.ops import NotStatic


def dropout(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Dropout. In inference, or with a ratio of 0, it is the identity, and the mask is true
    everywhere. In training, an element is kept if a random number is at least the ratio, and scaled
    by 1 / (1 − ratio)."""
    training = scope.data(node.input(2)) if node.input(2) else np.False_
    ratio = scope.data(node.input(1)) if node.input(1) else np.float32(0.5)
    if training is None:
        raise NotStatic("its mode depends on data known only at run time", (node.inputs[2],))
    (x, *_), (y, *mask) = node.inputs, node.outputs
    if np.any(training) and (ratio is None or np.any(ratio)):
        return _dropped(node, scope)
    nodes = [RawNode("Identity", [x], [y], {}, node.origin)]
    if mask and scope.is_read(mask[0]):
        shape = scope.constant(ints(scope.shape(x)))
        # Before 10 the mask has the type of the data. Before 12 its meaning was open, and ONNX
        # Runtime returns false.
        dtype = DType.BOOL if opset >= 10 else scope.dtype(x)
        attrs = {"value": int(opset >= 12), "dtype": str(dtype)}
        nodes.append(RawNode("ConstantOfShape", [shape], mask, attrs, node.origin))
    return nodes


def _dropped(node: RawNode, scope: ImportScope) -> list[RawNode]:
    (x, *_), (y, *mask) = node.inputs, node.outputs
    dtype = scope.dtype(x)

    def number(value: float) -> str:
        return scope.constant(np.array(value, dtype.numpy))

    ratio = scope.add("Cast", node.inputs[1], to=str(dtype)) if node.input(1) else number(0.5)
    drawn = scope.add("RandomUniformLike", x, dtype=str(dtype), seed=seed_of(node))
    kept = scope.add("GreaterOrEqual", drawn, ratio)
    scaled = scope.add("Div", x, scope.add("Sub", number(1), ratio))
    nodes = [RawNode("Where", [kept, scaled, number(0)], [y], {}, node.origin)]
    if mask and mask[0]:
        nodes.append(RawNode("Identity", [kept], mask, {}, node.origin))
    return nodes


def _normalized_by_element(node: RawNode, scope: ImportScope) -> list[RawNode]:
    """Rewrite BatchNormalization with `spatial=0` (before opset 9), which has statistics, scale and
    bias for each element of an example."""
    x, scale, bias, mean, variance = node.inputs
    epsilon = np.array(node.attrs.get("epsilon", 1e-5), scope.dtype(x).numpy)
    deviation = scope.add("Sqrt", scope.add("Add", variance, scope.constant(epsilon)))
    factor = scope.add("Div", scale, deviation)
    scaled = scope.add("Mul", scope.add("Sub", x, mean), factor)
    return [RawNode("Add", [scaled, bias], node.outputs[:1], {}, node.origin)]


def batch_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite BatchNormalization. In training mode it normalizes by the batch's own mean and
    variance, and updates the running ones: running·momentum + batch·(1 − momentum)."""
    momentum = node.attrs.pop("momentum", 0.9)
    if not node.attrs.pop("spatial", 1):
        return _normalized_by_element(node, scope)
    if not node.attrs.pop("training_mode", 0):
        return [node]
    x, scale, bias, *running = node.inputs
    rank, dtype = len(scope.shape(x)), scope.dtype(x)
    axes = scope.constant(ints([axis for axis in range(rank) if axis != 1]))
    mean = scope.add("ReduceMean", x, axes)
    centred = scope.add("Sub", x, mean)
    variance = scope.add("ReduceMean", scope.add("Mul", centred, centred), axes)
    batch = [scope.add("Squeeze", moment, axes) for moment in (mean, variance)]
    nodes = [
        RawNode(
            "BatchNormalization",
            [x, scale, bias, *batch],
            node.outputs[:1],
            node.attrs,
            node.origin,
        )
    ]
    for old, new, result in zip(running, batch, node.outputs[1:], strict=False):
        kept = scope.constant(np.array(momentum, dtype.numpy))
        moved = scope.constant(np.array(1 - momentum, dtype.numpy))
        parts = [scope.add("Mul", old, kept), scope.add("Mul", new, moved)]
        nodes.append(RawNode("Add", parts, [result], {}, node.origin))
    return nodes
