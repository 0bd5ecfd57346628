"""The scores of ai.onnx.ml's models: their post-transforms, and the labels chosen by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.codes import bind_strings, codes, words
from farrier.ops import Mismatch, NotSupported

_NEAR_ZERO = 1e-7  # Scores up to it count as zeros of SOFTMAX_ZERO, as in ONNX Runtime.
_WINITZKI = 0.147  # The constant of Winitzki's formula for erf⁻¹, which ONNX Runtime uses too.


def transformed(scores: str, transform: str, scope: ImportScope) -> str:
    """Return the scores after the post-transform `transform`, such as SOFTMAX."""
    match transform:
        case "NONE":
            return scores
        case "LOGISTIC":
            return scope.add("Sigmoid", scores)
        case "SOFTMAX":
            return scope.add("Softmax", scores, axis=-1)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores, scope)
        case "PROBIT":
            return _probit(scores, scope)
    raise NotSupported(f"the post_transform {transform!r}")


def finished(node: RawNode, scores: str, transform: str, scope: ImportScope) -> list[RawNode]:
    """Return the node that binds the node's output to the scores after the post-transform
    `transform`."""
    result = transformed(scores, transform, scope)
    return [RawNode("Identity", [result], node.outputs, {}, node.origin)]


def _softmax_zero(scores: str, scope: ImportScope) -> str:
    """Return ai.onnx.ml's SOFTMAX_ZERO: a softmax over the scores that are not near zero. Scores
    near zero are scaled but not exponentiated."""
    last = scope.constant(ints([-1]))
    large = scope.add("Greater", scope.add("Abs", scores), _like(scores, _NEAR_ZERO, scope))
    top = scope.add("ReduceMax", scores, last, keepdims=1)
    powers = scope.add("Exp", scope.add("Sub", scores, top))
    zero = _like(scores, 0, scope)
    total = scope.add("ReduceSum", scope.add("Where", large, powers, zero), last, keepdims=1)
    small = scope.add("Mul", scores, scope.add("Exp", scope.add("Neg", top)))
    return scope.add("Div", scope.add("Where", large, powers, small), total)


def _probit(scores: str, scope: ImportScope) -> str:
    """Return the quantile function of the normal distribution, √2 · erf⁻¹(2x − 1), by Winitzki's
    approximation."""

    def c(value: float) -> str:
        return _like(scores, value, scope)

    x = scope.add("Sub", scope.add("Mul", scores, c(2)), c(1))
    inner = scope.add("Mul", scope.add("Sub", c(1), x), scope.add("Add", c(1), x))
    logarithm = scope.add("Log", inner)
    half = scope.add("Mul", logarithm, c(0.5))
    v = scope.add("Add", half, c(2 / (math.pi * _WINITZKI)))
    square = scope.add("Sub", scope.add("Mul", v, v), scope.add("Mul", logarithm, c(1 / _WINITZKI)))
    size = scope.add("Sqrt", scope.add("Sub", scope.add("Sqrt", square), v))
    signed = scope.add("Where", scope.add("Less", x, c(0)), scope.add("Neg", size), size)
    return scope.add("Mul", signed, c(math.sqrt(2)))


def labels_of(attrs: dict[str, Any], integers: str) -> npt.NDArray[Any]:
    """Return the labels of a classifier: strings, or integers from the attribute `integers`. Raises
    Mismatch if it has both, or neither."""
    texts, numbers = attrs.get("classlabels_strings", ()), attrs.get(integers, ())
    if bool(texts) == bool(numbers):
        raise Mismatch("a classifier needs labels that are strings, or labels that are integers")
    return words(texts) if texts else np.array(numbers, np.int64)


def bind_labels(
    node: RawNode, positions: str, labels: npt.NDArray[Any], scope: ImportScope
) -> None:
    """Bind the node's first output to the labels at `positions`."""
    if not node.outputs[0]:
        return
    table = scope.constant(labels)
    if labels.dtype.kind == "U":
        taken = scope.add("Gather", codes(scope, table), positions, axis=0)
        bind_strings(scope, node.outputs[0], taken)
    else:
        taken = scope.add("Gather", table, positions, axis=0)
        scope.bind(node.outputs[0], scope.entry(taken))


def bind_scores(node: RawNode, scores: str, scope: ImportScope) -> None:
    """Bind the node's second output, if it has one, to the scores as f32."""
    if len(node.outputs) > 1 and node.outputs[1]:
        scope.bind(node.outputs[1], scope.entry(scope.add("Cast", scores, to="f32")))


def two_columns(score: str, transform: str, is_share: bool, scope: ImportScope) -> str:
    """Return the scores [N, 2] of both classes, from a column [N, 1] of the second class's scores.

    The score of the first class is 1 minus the second class's score if `is_share` is true,
    otherwise the negated score. With LOGISTIC, the scores are the sigmoids of the negated score and
    of the score; as in ONNX Runtime, no other post-transform is applied.
    """
    if transform == "PROBIT":
        raise NotSupported("PROBIT of a single score for two classes")
    if is_share and transform != "LOGISTIC":
        other = scope.add("Sub", _like(score, 1, scope), score)
    else:
        other = scope.add("Neg", score)
    if transform == "LOGISTIC":
        score, other = scope.add("Sigmoid", score), scope.add("Sigmoid", other)
    return scope.add("Concat", other, score, axis=1)


def above(score: str, threshold: float, scope: ImportScope) -> str:
    """Return label positions, i64 [N]: 1 where a column [N, 1] is above a threshold, else 0."""
    flat = scope.add("Reshape", score, [-1])
    return scope.add("Cast", scope.add("Greater", flat, _like(score, threshold, scope)), to="i64")


def rows_of(x: str, scope: ImportScope, dtype: str = "f32") -> str:
    """Return the examples as a matrix; a vector becomes one row. Elements that are not floats are
    cast to `dtype`."""
    if not scope.dtype(x).is_float:
        x = scope.add("Cast", x, to=dtype)
    rank = len(scope.shape(x))
    if rank == 1:
        return scope.add("Unsqueeze", x, [0])
    if rank != 2:
        raise Mismatch(f"its input has {rank} axes, and must be a matrix [examples, features]")
    return x


def _like(name: str, value: float, scope: ImportScope) -> str:
    return scope.constant(np.array(value, scope.dtype(name).numpy))
