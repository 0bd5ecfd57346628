"""TreeEnsemble: decision trees whose leaves vote for targets, as nodes in packed arrays.

Every node asks whether one feature is at most its split, or where `equal` is true, whether it is
that; `missing` says whether NaN counts as a yes. Children and roots are positions of nodes, or
-1 - l for the leaf l, whose votes are those from first[l] to first[l + 1]. A node stands behind its
parents, so that every walk ends; the importer (`rewrites/trees.py`) brings all forms of ONNX into
this one.
"""

from __future__ import annotations

import numpy as np

from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.builder import attributes_of
from farrier.ops.nest import LoopBuilder
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    int_attr,
    present,
    required,
)
from farrier.ops.scalar import both, either, equal, maximum, minimum, number, unequal, where

_INPUTS = 11  # x, roots, features, splits, equal, missing, yes, no, first, targets, weights
_COMBINE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, *others = (required(types, position) for position in range(_INPUTS))
    if x.rank != 2 or any(kind.rank != 1 for kind in others):
        raise Mismatch(f"its input {x.shape} is no matrix, or its nodes are no vectors")
    if attrs["aggregate"] not in _COMBINE:
        raise Mismatch(f"votes that are aggregated by {attrs['aggregate']!r}")
    return (TensorType(x.dtype, (x.shape[0], int_attr(attrs, "count"))),)


def _initial(attrs: Attrs, array: Array) -> float:
    """What a target starts from."""
    largest = float(np.finfo(array.dtype).max)
    return {"sum": 0.0, "min": largest, "max": -largest}[str(attrs["aggregate"])]


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, roots, features, splits, same, missing, yes, no, first, targets, weights = (
        present(arrays, position) for position in range(_INPUTS)
    )
    combine = _COMBINE[str(attrs["aggregate"])]
    totals = np.full((len(x), int_attr(attrs, "count")), _initial(attrs, x), x.dtype)
    for row, total in zip(x, totals, strict=True):
        for at in roots.tolist():
            while at >= 0:
                value = row[features[at]]
                goes = value == splits[at] if same[at] else value <= splits[at]
                goes = goes or (missing[at] and np.isnan(value))
                at = int((yes if goes else no)[at])
            for vote in range(first[-1 - at], first[-at]):
                total[targets[vote]] = combine(total[targets[vote]], weights[vote])
    return (totals,)


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Rows in parallel; each walks down all trees."""
    attrs = attributes_of(node)
    x, roots, features, splits, same, missing, yes, no, first, targets, weights = (
        nest.input(position) for position in range(_INPUTS)
    )
    out, count = nest.output(0), int_attr(attrs, "count")
    start = _initial(attrs, np.zeros((), x.dtype.numpy))
    aggregate = str(attrs["aggregate"])
    with nest.parallel(x.shape[0]) as (row,):
        totals = nest.local("totals", (count,), x.dtype)
        with nest.for_(count) as target:
            totals[target] = number(start, x.dtype)
        with nest.for_(roots.shape[0], "tree") as tree:
            at = nest.variable(roots[tree], "at")
            with nest.while_(at.value >= 0):
                value = nest.let(x[row, features[at.value]], "value")
                unknown = both(missing[at.value], unequal(value, value))
                split = splits[at.value]
                goes = either(where(same[at.value], equal(value, split), value <= split), unknown)
                at.value = where(goes, yes[at.value], no[at.value])
            leaf = nest.let(-1 - at.value, "leaf")
            vote = nest.variable(first[leaf], "vote")
            with nest.while_(vote.value < first[leaf + 1]):
                target = nest.let(targets[vote.value], "target")
                weight, total = weights[vote.value], totals[target]
                if aggregate == "sum":
                    totals[target] = total + weight
                else:
                    least = aggregate == "min"
                    totals[target] = minimum(total, weight) if least else maximum(total, weight)
                vote.value += 1
        with nest.for_(count) as target:
            out[row, target] = totals[target]


OPERATORS: tuple[Operator, ...] = (
    Operator("TreeEnsemble", Kind.NEST, _infer, _reference, None, nest=_nest),
)
