"""Rewrite linear models and preprocessing steps of ai.onnx.ml to operators of ai.onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites.scores import (
    above,
    bind_labels,
    bind_scores,
    finished,
    labels_of,
    rows_of,
    transformed,
    two_columns,
)
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.codes import bind_strings, codes, is_strings, words
from farrier.frontends.onnx.importer.strings.tables import find
from farrier.ir.dim import Extent
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import differ


def array_feature_extractor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ArrayFeatureExtractor: select elements of the last axis. For a vector the result is
    [1, selected]."""
    x, places = node.inputs
    flat = scope.add("Reshape", places, [-1])
    if is_strings(scope, x):
        points = codes(scope, x)
        rank = len(scope.shape(points)) - 1
        taken = scope.add("Gather", points, flat, axis=rank - 1)
        if rank == 1:
            taken = scope.add("Unsqueeze", taken, [0])
        bind_strings(scope, node.outputs[0], taken)
        return []
    if len(scope.shape(x)) > 1:
        return [RawNode("Gather", [x, flat], node.outputs, {"axis": -1}, node.origin)]
    row = scope.constant(ints([1, -1]))
    taken = scope.add("Gather", x, flat, axis=-1)
    return [RawNode("Reshape", [taken, row], node.outputs, {}, node.origin)]


def binarizer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Binarizer: 1 above the threshold, else 0."""
    (x,), dtype = node.inputs, scope.dtype(node.inputs[0])
    wide = x if dtype.is_float else scope.add("Cast", x, to=str(DType.F64))
    threshold = np.array(node.attrs.get("threshold", 0.0), scope.dtype(wide).numpy)
    exceeds = scope.add("Greater", wide, scope.constant(threshold))
    return [RawNode("Cast", [exceeds], node.outputs, {"to": str(dtype)}, node.origin)]


def scaler(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Scaler: (x - offset) · scale, feature by feature."""
    x = _as_f32(node.inputs[0], scope)
    offset, scale = (
        scope.constant(np.array(node.attrs.get(name, (value,)), np.float32))
        for name, value in (("offset", 0.0), ("scale", 1.0))
    )
    return [RawNode("Mul", [scope.add("Sub", x, offset), scale], node.outputs, {}, node.origin)]


def normalizer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Normalizer: divide each row by its maximum, its sum of absolute values, or its
    Euclidean norm. Rows for which the divisor is 0 stay unchanged."""
    x, last = _as_f32(node.inputs[0], scope), scope.constant(ints([-1]))
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    norm = str(node.attrs.get("norm", "MAX"))
    if norm not in reductions:
        raise NotSupported(f"the norm {norm!r}")
    size = scope.add(reductions[norm], x, last, keepdims=1)
    zero, unit = (scope.constant(np.array(value, np.float32)) for value in (0, 1))
    divisor = scope.add("Where", scope.add("Equal", size, zero), unit, size)
    return [RawNode("Div", [x, divisor], node.outputs, {}, node.origin)]


def imputer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite Imputer: replace elements that equal the marker of a missing value by a constant, one
    for all features or one for each."""
    x, dtype = node.inputs[0], scope.dtype(node.inputs[0])
    what = "float" if dtype.is_float else "int64"
    values = node.attrs.get(f"imputed_value_{what}s", ())
    features = scope.shape(x)[-1]
    if not values or (len(values) > 1 and differ(len(values), features)):
        raise Mismatch(f"{len(values)} values to impute for {features} features of {dtype}")
    missing = np.array(node.attrs.get(f"replaced_value_{what}", 0), dtype.numpy)
    if np.isnan(missing):
        absent = scope.add("IsNaN", x)
    else:
        absent = scope.add("Equal", x, scope.constant(missing))
    imputed = scope.constant(np.array(values, dtype.numpy))
    return [RawNode("Where", [absent, imputed, x], node.outputs, {}, node.origin)]


def feature_vectorizer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite FeatureVectorizer: concatenate the columns of all inputs, each cut or padded with
    zeros to the number in `inputdimensions`."""
    parts = [rows_of(_as_f32(name, scope), scope) for name in node.inputs]
    lengths = node.attrs.get("inputdimensions", [scope.shape(part)[-1] for part in parts])
    if len(lengths) != len(parts):
        raise Mismatch(f"{len(lengths)} inputdimensions for {len(parts)} inputs")
    sized = [_of_width(p, length, scope) for p, length in zip(parts, lengths, strict=True)]
    return [RawNode("Concat", sized, node.outputs, {"axis": 1}, node.origin)]


def _of_width(part: str, length: Extent, scope: ImportScope) -> str:
    """Return a matrix cut or padded with zeros to `length` columns."""
    width, last = scope.shape(part)[-1], scope.constant(ints([1]))
    if width == length:
        return part
    if length < width:
        return scope.add("Slice", part, [0], [length], last)
    return scope.add("Pad", part, [0, length - width], "", last)


def one_hot_encoder(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite OneHotEncoder: add a last axis over the categories, with 1 at the element's category.
    An element in no category has only zeros."""
    x = node.inputs[0]
    categories: npt.NDArray[Any]
    if is_strings(scope, x):
        categories, rows = words(node.attrs.get("cats_strings", ())), codes(scope, x)
        keys = categories
    else:
        categories = np.array(node.attrs.get("cats_int64s", ()), np.int64)
        whole = scope.add("Cast", x, to=str(DType.I64))
        rows, keys = scope.add("Unsqueeze", whole, [-1]), categories[:, None]
    if not len(categories):
        raise Mismatch("it lists no categories of its input's type")
    place, kept = find(scope, rows, keys)
    table = np.zeros((len(kept) + 1, len(categories)), np.float32)
    table[np.arange(len(kept)), kept] = 1
    inputs = [scope.constant(table), place]
    return [RawNode("Gather", inputs, node.outputs, {"axis": 0}, node.origin)]


def zip_map(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite ZipMap to its input, a matrix. The rows become maps only when outputs are returned to
    the caller; the keys are part of the output's declaration."""
    x, labels = node.inputs[0], labels_of(node.attrs, "classlabels_int64s")
    if len(scope.shape(x)) == 1:
        x = scope.add("Unsqueeze", x, [0])
    if len(scope.shape(x)) != 2 or differ(scope.shape(x)[1], len(labels)):
        raise Mismatch(f"{len(labels)} labels for columns of {scope.shape(x)}")
    return [RawNode("Identity", [x], node.outputs, {}, node.origin)]


def linear_regressor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite LinearRegressor: x · coefficientsᵀ + intercepts."""
    targets = int(node.attrs.get("targets", 1))
    scores = _linear(node, targets, node.attrs.get("intercepts", ()), scope)
    return finished(node, scores, node.attrs.get("post_transform", "NONE"), scope)


def linear_classifier(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite LinearClassifier: the label with the highest score; for two labels with a single
    score, the label by the sign of that score."""
    attrs = node.attrs
    labels = labels_of(attrs, "classlabels_ints")
    intercepts = attrs.get("intercepts", ())
    count = len(intercepts) or len(labels)
    scores = _linear(node, count, intercepts, scope)
    transform = attrs.get("post_transform", "NONE")
    if count == 1 and len(labels) == 2:
        bind_labels(node, above(scores, 0.0, scope), labels, scope)
        bind_scores(node, two_columns(scores, transform, True, scope), scope)
        return []
    if count != len(labels):
        raise Mismatch(f"{len(labels)} labels for {count} scores")
    bind_labels(node, scope.add("ArgMax", scores, axis=1, keepdims=0), labels, scope)
    bind_scores(node, transformed(scores, transform, scope), scope)
    return []


def _linear(node: RawNode, targets: int, intercepts: Any, scope: ImportScope) -> str:
    """Return the scores [examples, targets] of a linear model."""
    x = _as_f32(rows_of(node.inputs[0], scope), scope)
    weights = np.array(node.attrs.get("coefficients", ()), np.float32)
    features = scope.shape(x)[-1]
    if targets < 1 or differ(len(weights), targets * features):
        raise Mismatch(f"{len(weights)} coefficients for {features} features of {targets} targets")
    columns = np.ascontiguousarray(weights.reshape(targets, -1).T)
    scores = scope.add("MatMul", x, scope.constant(columns))
    if len(intercepts):
        offsets = scope.constant(np.array(intercepts, np.float32))
        scores = scope.add("Add", scores, offsets)
    return scores


def _as_f32(x: str, scope: ImportScope) -> str:
    return x if scope.dtype(x) is DType.F32 else scope.add("Cast", x, to=str(DType.F32))
