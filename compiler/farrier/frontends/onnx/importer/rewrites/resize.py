"""Rewrite Upsample and Resize of all opsets to the form of Resize that the builder expects."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops.operator import normal_axis


def upsample(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Upsample to Resize as of opset 10, with asymmetric coordinates rounded down."""
    if "scales" in node.attrs:
        node.inputs.append(scope.constant(np.array(node.attrs.pop("scales"), np.float32)))
    return resize(RawNode("Resize", node.inputs, node.outputs, node.attrs, node.origin), 10, scope)


def resize(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Resize to the newest form. Before opset 11, inputs were (x, scales), and coordinates
    were asymmetric and rounded down."""
    if opset < 11:
        node.inputs.insert(1, "")
        node.attrs["mode"] = str(node.attrs.get("mode", "nearest")).replace("bilinear", "linear")
        node.attrs["coordinate_transformation_mode"] = "asymmetric"
        node.attrs["nearest_mode"] = "floor"
    if node.attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize" and node.input(1):
        node.inputs[1] = ""  # Only tf_crop_and_resize reads the region of interest.
    _keep_aspect_ratio(node, scope)
    return [node]


def _keep_aspect_ratio(node: RawNode, scope: ImportScope) -> None:
    """Apply the attribute `keep_aspect_ratio_policy` to the node's sizes: all axes are scaled by
    the same factor, the least or the greatest of the ratios (requested size / input size)."""
    policy = node.attrs.pop("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not node.input(3):
        return
    shape = scope.shape(node.inputs[0])
    axes = [normal_axis(axis, len(shape)) for axis in node.attrs.get("axes") or range(len(shape))]
    own = scope.constant(ints([shape[axis] for axis in axes]))
    wanted, own = (scope.add("Cast", name, to="f64") for name in (node.inputs[3], own))
    reduction = "ReduceMin" if policy == "not_larger" else "ReduceMax"
    scale = scope.add(reduction, scope.add("Div", wanted, own), [0])
    half = scope.constant(np.array(0.5))
    kept = scope.add("Floor", scope.add("Add", scope.add("Mul", own, scale), half))
    common = scope.data(scale)
    if common is not None and common.dtype != object:
        # Coordinates follow the common scale and not the sizes, which are rounded. An open scale
        # cannot be an operand of Resize, so coordinates follow the sizes then.
        factors = np.full(len(axes), common.item(), np.float32)
        node.inputs[2] = scope.constant(factors)
    node.inputs[3] = scope.add("Cast", kept, to="i64")
