"""Rewrite experimental operators of ONNX before opset 10 to current operators.

The current ONNX specification does not contain them. ONNX Runtime still runs most of them, and its
behaviour is the reference here.
"""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.frontends.onnx.importer.tensors import dtype_of
from farrier.ir.dim import Extent
from farrier.ops import Mismatch
from farrier.ops.operator import to_extents


def affine(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Affine as alpha · x + beta, and Scale as scale · x."""
    factor = node.attrs.get("alpha", node.attrs.get("scale", 1.0))
    scaled = _times(node.inputs[0], factor, scope)
    offset = _number(node.inputs[0], node.attrs.get("beta", 0.0), scope)
    return [RawNode("Add", [scaled, offset], node.outputs, {}, node.origin)]


def parametric(function: str) -> Upgrade:
    """Return the rewrite to alpha · function(beta · x)."""

    def rule(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
        inner = scope.add(function, _times(node.inputs[0], node.attrs.get("beta", 1.0), scope))
        factor = _number(inner, node.attrs.get("alpha", 1.0), scope)
        return [RawNode("Mul", [inner, factor], node.outputs, {}, node.origin)]

    return rule


def image_scaler(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ImageScaler: scale · x + bias, with a bias per channel of images [N, C, H, W]."""
    x = node.inputs[0]
    scaled = _times(x, node.attrs.get("scale", 1.0), scope)
    bias = np.array(node.attrs.get("bias", (0.0,)), scope.dtype(x).numpy).reshape(-1, 1, 1)
    return [RawNode("Add", [scaled, scope.constant(bias)], node.outputs, {}, node.origin)]


def crop(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Crop: images without a border (left, top, right, bottom), or a section of the size
    `scale` (height, width) that begins at the left and top of the border."""
    shape, border = scope.shape(node.inputs[0]), node.attrs.get("border", ())
    if len(shape) != 4 or len(border) != 4 or min(border) < 0:
        raise Mismatch(f"a border {tuple(border)} of images {shape}: it must be four sizes")
    left, top, right, bottom = border
    height, width = node.attrs.get("scale") or (shape[2] - bottom - top, shape[3] - right - left)
    bounds: tuple[list[Extent], ...] = ([top, left], [top + height, left + width], [2, 3])
    inputs = [node.inputs[0], *(scope.constant(ints(values)) for values in bounds)]
    return [RawNode("Slice", inputs, node.outputs, {}, node.origin)]


def constant_fill(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ConstantFill: a tensor of one value. Its shape is the attribute `shape`, the values
    of the input, or the input's shape followed by `extra_shape`."""
    attrs = node.attrs
    if not node.inputs:
        shape = list(attrs.get("shape", ()))
    elif attrs.get("input_as_shape", 0):
        shape = list(to_extents(scope.sizes(node.inputs[0])))
    else:
        shape = list(scope.shape(node.inputs[0]))
    dtype = dtype_of(attrs.get("dtype", 1), f"the result of node {node.origin!r}")
    value = scope.constant(np.array(attrs.get("value", 0.0)).astype(dtype.numpy))
    extents = scope.constant(ints([*shape, *attrs.get("extra_shape", ())]))
    return [RawNode("Expand", [value, extents], node.outputs, {}, node.origin)]


def dynamic_slice(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite DynamicSlice, the predecessor of Slice with starts and ends as inputs."""
    return [RawNode("Slice", node.inputs, node.outputs, {}, node.origin)]


def mean_variance_normalization(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MeanVarianceNormalization before opset 9: it normalizes over the batch and the
    spatial axes, and with `across_channels` also over the channels. Without `normalize_variance` it
    only subtracts the mean."""
    if opset >= 9:
        return [node]
    x = node.inputs[0]
    rank, is_across = len(scope.shape(x)), bool(node.attrs.get("across_channels", 0))
    axes = [axis for axis in range(rank) if is_across or axis != 1]
    if node.attrs.get("normalize_variance", 1):
        attrs = {"axes": tuple(axes)}
        return [RawNode("MeanVarianceNormalization", [x], node.outputs, attrs, node.origin)]
    mean = scope.add("ReduceMean", x, axes)
    return [RawNode("Sub", [x, mean], node.outputs, {}, node.origin)]


def _number(like: str, value: float, scope: ImportScope) -> str:
    return scope.constant(np.array(value, scope.dtype(like).numpy))


def _times(x: str, factor: float, scope: ImportScope) -> str:
    return x if factor == 1 else scope.add("Mul", x, _number(x, factor, scope))


RULES: dict[str, Upgrade] = {
    "Affine": affine,
    "Scale": affine,
    "ParametricSoftplus": parametric("Softplus"),
    "ScaledTanh": parametric("Tanh"),
    "ImageScaler": image_scaler,
    "Crop": crop,
    "ConstantFill": constant_fill,
    "DynamicSlice": dynamic_slice,
}
