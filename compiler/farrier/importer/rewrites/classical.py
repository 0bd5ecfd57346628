"""Classical operators of ai.onnx.ml as those of ai.onnx."""

from __future__ import annotations

import numpy as np

from farrier.importer.raw import RawNode
from farrier.importer.scope import ImportScope, ints
from farrier.ir.dim import number
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported


def array_feature_extractor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Elements of the last axis; a vector gives a matrix of one row."""
    x, places = node.inputs
    flat = scope.add("Reshape", places, scope.constant(ints([-1])))
    taken = RawNode("Gather", [x, flat], node.outputs, {"axis": -1}, node.origin)
    if len(scope.shape(x)) > 1:
        return [taken]
    made = scope.add("Gather", x, flat, axis=-1)
    row = scope.constant(ints([1, -1]))
    return [RawNode("Reshape", [made, row], node.outputs, {}, node.origin)]


def binarizer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """1 above the threshold, else 0."""
    (x,), dtype = node.inputs, scope.dtype(node.inputs[0])
    wide = x if dtype.is_float else scope.add("Cast", x, to=str(DType.F64))
    threshold = np.array(node.attrs.get("threshold", 0.0), scope.dtype(wide).numpy)
    above = scope.add("Greater", wide, scope.constant(threshold))
    return [RawNode("Cast", [above], node.outputs, {"to": str(dtype)}, node.origin)]


def scaler(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """(x - offset) · scale, feature by feature."""
    x = _as_f32(node, scope)
    offset, scale = (
        scope.constant(np.array(node.attrs.get(name, (value,)), np.float32))
        for name, value in (("offset", 0.0), ("scale", 1.0))
    )
    return [RawNode("Mul", [scope.add("Sub", x, offset), scale], node.outputs, {}, node.origin)]


def linear_regressor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """A product with the coefficients, target by target, and the intercepts."""
    x, targets = _as_f32(node, scope), int(node.attrs.get("targets", 1))
    weights = np.array(node.attrs.get("coefficients", ()), np.float32)
    features = number(scope.shape(x)[-1])
    if targets < 1 or len(weights) != targets * features:
        raise Mismatch(f"{len(weights)} coefficients for {features} features of {targets} targets")
    turned = np.ascontiguousarray(weights.reshape(targets, features).T)
    made = scope.add("MatMul", x, scope.constant(turned))
    if node.attrs.get("intercepts"):
        intercepts = np.array(node.attrs["intercepts"], np.float32)
        made = scope.add("Add", made, scope.constant(intercepts))
    return finished(node, made, node.attrs.get("post_transform", "NONE"), scope)


def finished(node: RawNode, scores: str, transform: str, scope: ImportScope) -> list[RawNode]:
    """The node's output: the scores, transformed."""
    match transform:
        case "NONE":
            return [RawNode("Identity", [scores], node.outputs, {}, node.origin)]
        case "LOGISTIC":
            return [RawNode("Sigmoid", [scores], node.outputs, {}, node.origin)]
        case "SOFTMAX":
            return [RawNode("Softmax", [scores], node.outputs, {"axis": -1}, node.origin)]
    raise NotSupported(f"the post_transform {transform!r}")


def _as_f32(node: RawNode, scope: ImportScope) -> str:
    (x,) = node.inputs
    if scope.dtype(x) is DType.F32:
        return x
    return scope.add("Cast", x, to=str(DType.F32))
