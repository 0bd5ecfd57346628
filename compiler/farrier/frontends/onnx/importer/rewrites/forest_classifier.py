"""Rewrite TreeEnsembleClassifier of ai.onnx.ml to a TreeEnsemble that computes scores, and their
labels."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.scores import (
    above,
    bind_labels,
    bind_scores,
    labels_of,
    rows_of,
    transformed,
    two_columns,
)
from farrier.frontends.onnx.importer.rewrites.trees import Forest, base_values
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops import Mismatch


def tree_ensemble_classifier(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite TreeEnsembleClassifier: the label with the highest score.

    If there are two classes and all votes are for one of them, the label depends on whether that
    class's score is above 0, or above ½ if no vote is negative. The specification leaves this open;
    this is ONNX Runtime's behaviour.
    """
    attrs, forest = node.attrs, Forest.of(node.attrs, "class")
    labels = labels_of(attrs, "classlabels_int64s")
    count, base = len(labels), base_values(attrs)
    transform = attrs.get("post_transform", "NONE")
    if len(base) not in (0, count) and (count, len(base)) != (2, 1):
        raise Mismatch(f"{len(base)} base values for {count} labels")
    node.inputs[0] = rows_of(node.inputs[0], scope)
    voted, counts = {*np.unique(forest.votes.targets).tolist()}, None
    is_binary = count == 2 and len(voted) == 1 and len(base) < 2
    if base or is_binary:
        scores = forest.scores(node, scope, "SUM", count)
    else:
        scores, counts = forest.voted_scores(node, scope, count)
    if base:
        values = base if len(base) == count else [base[0] * (c in voted) for c in range(count)]
        scores = scope.add(
            "Add", scores, scope.constant(np.array(values, scope.dtype(scores).numpy))
        )
    if is_binary:
        _binary(node, forest, scores, voted.pop(), scope)
        return []
    ranked = scores
    if counts is not None:  # A class without votes must not be chosen.
        zero, least = (
            scope.constant(np.array(value, scope.dtype(scores).numpy))
            for value in (0, np.finfo(scope.dtype(scores).numpy).min)
        )
        ranked = scope.add("Where", scope.add("Greater", counts, zero), scores, least)
    bind_labels(node, scope.add("ArgMax", ranked, axis=1, keepdims=0), labels, scope)
    bind_scores(node, transformed(scores, transform, scope), scope)
    return []


def _binary(node: RawNode, forest: Forest, scores: str, voted: int, scope: ImportScope) -> None:
    """Bind the two outputs of a classifier with two classes whose votes are all for the class
    number `voted`. If that is class 0, ONNX Runtime nevertheless uses the sum of votes as the score
    of class 1, and so does this function."""
    transform = node.attrs.get("post_transform", "NONE")
    is_share = bool((forest.votes.weights >= 0).all())
    score = scope.add("Gather", scores, [voted], axis=1)
    labels = labels_of(node.attrs, "classlabels_int64s")
    bind_labels(node, above(score, 0.5 if is_share else 0.0, scope), labels, scope)
    if voted == 0:
        bind_scores(node, two_columns(score, transform, is_share, scope), scope)
    else:
        bind_scores(node, transformed(scores, transform, scope), scope)
