"""Rewrite TfIdfVectorizer: count the occurrences of each n-gram of a vocabulary."""

from __future__ import annotations

import functools

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.known import check_made
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.codes import codes, words
from farrier.frontends.onnx.importer.strings.tables import find
from farrier.ir.dim import number


def tf_idf_vectorizer(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite TfIdfVectorizer: compare every window of a row with every n-gram, count the matches,
    and move the weighted counts to their output columns by a matrix product. Words are represented
    by their numbers in the vocabulary."""
    (x, *_), attrs = node.inputs, node.attrs
    if "pool_strings" in attrs:
        distinct, pool = np.unique(words(attrs["pool_strings"]), return_inverse=True)
        tokens, _ = find(scope, codes(scope, x), distinct)
    else:
        pool = np.array(attrs["pool_int64s"], np.int64)
        tokens = scope.add("Cast", x, to="i64")
    starts = [*attrs["ngram_counts"], len(pool)]
    *outer, last_axis = scope.shape(tokens)
    width = number(last_axis)
    places, weights = np.array(attrs["ngram_indexes"]), attrs.get("weights")
    longest, shortest = attrs["max_gram_length"], attrs["min_gram_length"]
    counts, first = [], 0
    check_made(len(places), int(places.max()) + 1)
    matrix = np.zeros((len(places), places.max() + 1), np.float32)
    for length in range(1, len(starts)):
        grams = pool[starts[length - 1] : starts[length]].reshape(-1, length)
        last, used = first + len(grams), shortest <= length <= longest
        if used and len(grams):
            occurrences = _occurrences(tokens, grams, width, attrs["max_skip_count"], scope)
            if occurrences:
                counts.append(
                    (
                        functools.reduce(functools.partial(scope.add, "Add"), occurrences),
                        first,
                        last,
                    )
                )
        first = last
    idf = np.ones(len(places), np.float32) if weights is None else np.array(weights, np.float32)
    by_weight = np.ones_like(idf) if attrs["mode"] == "TF" else idf
    matrix[np.arange(len(places)), places] = by_weight
    parts = []
    for count, low, high in counts:
        amount = scope.add("Cast", count, to="f32")
        if attrs["mode"] == "IDF":
            amount = scope.add("Min", amount, scope.constant(np.array(1, np.float32)))
        rows = scope.constant(np.ascontiguousarray(matrix[low:high]))
        parts.append(scope.add("MatMul", amount, rows))
    if not parts:
        shape = (*outer, matrix.shape[1])
        parts = [scope.constant(np.zeros(shape, np.float32))]
    return [RawNode("Identity", [_sum(parts, scope)], node.outputs, {}, node.origin)]


def _sum(parts: list[str], scope: ImportScope) -> str:
    return functools.reduce(functools.partial(scope.add, "Add"), parts)


def _occurrences(
    tokens: str, grams: np.ndarray, width: int, skips: int, scope: ImportScope
) -> list[str]:
    """Return the number of occurrences of each n-gram in each row, [rows, grams], as a list with
    one tensor for each number of words, from 0 to `skips`, that are skipped between the words of an
    n-gram."""
    length = grams.shape[1]
    counts = []
    longest = (width - 1) // (length - 1) - 1 if length > 1 else 0
    for skip in range(min(skips, longest) + 1):
        windows = width - (length - 1) * (skip + 1)
        equal = []
        for position in range(length):
            at = scope.constant(ints(np.arange(windows) + position * (skip + 1)))
            seen = scope.add("Gather", tokens, at, axis=-1)
            seen = scope.add("Unsqueeze", seen, [-1])
            wanted = scope.constant(np.ascontiguousarray(grams[:, position]))
            equal.append(scope.add("Equal", seen, wanted))
        match = functools.reduce(functools.partial(scope.add, "And"), equal)
        axis = scope.constant(ints([-2]))
        counts.append(scope.add("ReduceSum", scope.add("Cast", match, to="i64"), axis, keepdims=0))
    return counts
