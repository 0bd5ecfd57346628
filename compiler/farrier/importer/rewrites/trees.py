"""Tree ensembles of ai.onnx.ml → the operator TreeEnsemble, whose nodes compare in two ways.

x < s is x ≤ the number before s; x > s, x ≥ s and x ≠ s are the opposite of another, with children
exchanged; a set is a chain of nodes that each know one member.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.importer.raw import RawNode
from farrier.importer.rewrites.scores import finished, rows_of
from farrier.importer.scope import ImportScope
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

Child = int  # a node, or -1 - leaf


@dataclasses.dataclass(frozen=True)
class _Question:
    """A node of the model: `values` are one split, or the members of a set."""

    mode: str
    feature: int
    values: tuple[float, ...]
    missing: bool
    yes: Child
    no: Child


@dataclasses.dataclass(frozen=True)
class _Vote:
    leaf: int
    target: int
    weight: float


_Row = tuple[int, float, bool, bool, Child, Child]  # as the operator has them, question by question


def tree_ensemble(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Since 5: leaves apart from nodes, one vote a leaf."""
    a = node.attrs
    modes = [_MODES[mode] for mode in a["nodes_modes"].tolist()]
    count = len(modes)
    missing = a.get("nodes_missing_value_tracks_true", (0,) * count)
    members = _members(a.get("membership_values"))
    questions = []
    for i, mode in enumerate(modes):
        values = next(members) if mode == "MEMBER" else (float(a["nodes_splits"][i]),)
        yes, no = (
            -1 - a[f"nodes_{way}nodeids"][i]
            if a[f"nodes_{way}leafs"][i]
            else a[f"nodes_{way}nodeids"][i]
            for way in ("true", "false")
        )
        feature = a["nodes_featureids"][i]
        questions.append(_Question(mode, feature, values, bool(missing[i]), yes, no))
    votes = [
        _Vote(leaf, target, float(weight))
        for leaf, (target, weight) in enumerate(
            zip(a["leaf_targetids"], a["leaf_weights"].tolist(), strict=True)
        )
    ]
    aggregate = _AGGREGATES[a.get("aggregate_function", 1)]
    transform = _TRANSFORMS[a.get("post_transform", 0)]
    count = a.get("n_targets", 1)
    node.inputs[0] = rows_of(node.inputs[0], scope)
    made = _ensemble(node, scope, a["tree_roots"], questions, votes, aggregate, count)
    return finished(node, made, transform, scope)


def tree_ensemble_regressor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Before 5: nodes and votes by the numbers of their tree and node; leaves are nodes."""
    a = node.attrs
    forest = Forest.of(a, "target")
    aggregate, count = a.get("aggregate_function", "SUM"), a.get("n_targets", 1)
    node.inputs[0] = rows_of(node.inputs[0], scope)
    scores = forest.scores(node, scope, aggregate, count)
    base = base_values(a)
    if base:
        scores = scope.add("Add", scores, scope.constant(np.array(base, scope.dtype(scores).numpy)))
    scores = scope.add("Cast", scores, to=str(DType.F32))
    return finished(node, scores, a.get("post_transform", "NONE"), scope)


@dataclasses.dataclass(frozen=True)
class Forest:
    """The trees of an ensemble as its attributes describe them before 5."""

    roots: Sequence[Child]
    questions: Sequence[_Question]
    votes: Sequence[_Vote]

    @staticmethod
    def of(a: dict[str, Any], votes: str) -> Forest:
        """Read the attributes. The names of those for votes begin with `votes`: "target" or
        "class"."""
        places = list(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))
        at = {place: i for i, place in enumerate(places)}
        if len(at) < len(places):
            raise Mismatch("two nodes of a tree have the same number")
        modes = [mode.removeprefix("BRANCH_") for mode in a["nodes_modes"]]
        cast = [
            _Vote(at[tree, leaf], target, weight)
            for tree, leaf, target, weight in zip(
                *(a[f"{votes}_{what}"] for what in ("treeids", "nodeids", "ids")),
                _floats(a, f"{votes}_weights"),
                strict=True,
            )
        ]
        first: dict[int, int] = {}  # The first node of a tree is its root.
        for i, (tree, _) in enumerate(places):
            first.setdefault(tree, i)
        roots = [-1 - i if modes[i] == "LEAF" else i for i in first.values()]
        return Forest(roots, _questions(a, places, at, modes), cast)

    def scores(self, node: RawNode, scope: ImportScope, aggregate: str, count: int) -> str:
        """Return the name of the aggregated votes, [examples, count], without base values."""
        return _ensemble(node, scope, self.roots, self.questions, self.votes, aggregate, count)

    def counts(self, node: RawNode, scope: ImportScope, count: int) -> str | None:
        """Return the name of the number of votes for each class, [examples, count], or None if
        every example has votes for every class."""
        reached: dict[int, set[int]] = {leaf: set() for leaf in self._leaves()}
        for vote in self.votes:
            reached.setdefault(vote.leaf, set()).add(vote.target)
        always: set[int] = set()
        for root in self.roots:
            always |= set.intersection(*(reached[leaf] for leaf in self._leaves_below(root)))
        if len(always) == count:
            return None
        counted = [dataclasses.replace(vote, weight=1.0) for vote in self.votes]
        return dataclasses.replace(self, votes=counted).scores(node, scope, "SUM", count)

    def _leaves(self) -> set[int]:
        leaves = {-1 - root for root in self.roots if root < 0}
        for question in self.questions:
            leaves.update(-1 - child for child in (question.yes, question.no) if child < 0)
        return leaves

    def _leaves_below(self, root: Child) -> set[int]:
        """Return the leaves that are reachable from a root."""
        waiting, seen, leaves = [root], {root}, set()
        while waiting:
            at = waiting.pop()
            if at < 0:
                leaves.add(-1 - at)
                continue
            children = {self.questions[at].yes, self.questions[at].no} - seen
            seen |= children
            waiting += children
        return leaves


def _questions(
    a: dict[str, Any],
    places: Sequence[tuple[int, int]],
    at: dict[tuple[int, int], int],
    modes: Sequence[str],
) -> list[_Question]:
    """Return the nodes of a forest; `at` maps (tree, node) to the position in the attributes."""
    values = _floats(a, "nodes_values")
    missing = a.get("nodes_missing_value_tracks_true", (0,) * len(places))

    def child(i: int, way: str) -> Child:
        position = at[places[i][0], a[f"nodes_{way}nodeids"][i]]
        return -1 - position if modes[position] == "LEAF" else position

    return [
        _Question("LEQ", 0, (0.0,), False, -1 - i, -1 - i)
        if modes[i] == "LEAF"
        else _Question(
            modes[i],
            a["nodes_featureids"][i],
            (values[i],),
            bool(missing[i]),
            child(i, "true"),
            child(i, "false"),
        )
        for i in range(len(places))
    ]


def base_values(a: dict[str, Any]) -> list[float]:
    """Return the base values by target, or an empty list if the model has none."""
    return _floats(a, "base_values") if {"base_values", "base_values_as_tensor"} & {*a} else []


def _floats(attrs: dict[str, Any], name: str) -> list[float]:
    """An attribute that is a list, or with `_as_tensor` a tensor."""
    tensor = attrs.get(f"{name}_as_tensor")
    return list(attrs[name]) if tensor is None else tensor.reshape(-1).tolist()


def _members(values: npt.NDArray[Any] | None) -> Iterator[tuple[float, ...]]:
    """Sets, each ended by NaN."""
    found: list[float] = []
    for value in () if values is None else values.astype(np.float64).tolist():
        if math.isnan(value):
            yield tuple(found)
            found = []
        else:
            found.append(value)
    raise Mismatch("a node that asks for members has none")


def _ensemble(
    node: RawNode,
    scope: ImportScope,
    roots: Sequence[Child],
    questions: Sequence[_Question],
    votes: Sequence[_Vote],
    aggregate: str,
    count: int,
) -> str:
    """The name of what the trees say, before base values and transformations."""
    x = node.inputs[0]
    dtype, features = scope.dtype(x), scope.shape(x)[-1]
    asked = [question.feature for question in questions]
    if min(asked, default=0) < 0 or not max(asked, default=-1) < features:
        raise Mismatch(f"its nodes ask for features beyond the {features} of its input")
    if not all(0 <= vote.target < count for vote in votes):
        raise Mismatch(f"its leaves vote for targets beyond {count}")
    if aggregate not in _AGGREGATES:
        raise Mismatch(f"an aggregate_function {aggregate!r}")
    groups = [_rows(question, dtype.numpy) for question in questions]
    starts = [0, *itertools.accumulate(map(len, groups))]

    def place(child: Child) -> Child:
        if child >= len(groups):
            raise Mismatch(f"a node {child} of {len(groups)}")
        return child if child < 0 else starts[child]

    rows: list[_Row] = []
    for group in groups:
        for row in group[:-1]:  # whoever is not this member may be the next
            rows.append((*row[:4], place(row[4]), len(rows) + 1))
        rows.append((*group[-1][:4], place(group[-1][4]), place(group[-1][5])))
    tops, ordered = _in_order([place(root) for root in roots], rows)
    used = [-1 - min(row[4:]) for row in ordered] + [-1 - top for top in tops]
    leaves = 1 + max([*used, *(vote.leaf for vote in votes)], default=0)
    votes = sorted(votes, key=lambda vote: vote.leaf)
    first = np.searchsorted([vote.leaf for vote in votes], np.arange(leaves + 1))
    columns = list(zip(*ordered, strict=True)) or [()] * 6
    kinds: list[Any] = [np.int64, dtype.numpy, np.bool_, np.bool_, np.int64, np.int64]
    packed = [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    weights = np.array([vote.weight for vote in votes], dtype.numpy)
    if aggregate == "AVERAGE":
        weights = (weights / len(tops)).astype(dtype.numpy)
    targets = np.array([vote.target for vote in votes], np.int64)
    arrays = [np.array(tops, np.int64), *packed, first.astype(np.int64), targets, weights]
    how = "sum" if aggregate in ("SUM", "AVERAGE") else aggregate.lower()
    return scope.add("TreeEnsemble", x, *map(scope.constant, arrays), count=count, aggregate=how)


def _in_order(roots: Sequence[Child], rows: Sequence[_Row]) -> tuple[list[Child], list[_Row]]:
    """The rows that can be reached, each behind those that lead to it. Raises Mismatch for a
    cycle."""
    order: list[int] = []
    open_rows, done = set(), set()
    waiting = [root for root in roots if root >= 0]
    while waiting:
        at = waiting.pop()
        if at in done:
            continue
        inner = [child for child in rows[at][4:] if child >= 0 and child not in done]
        if at in open_rows and any(child in open_rows for child in inner):
            raise Mismatch("its trees have a cycle")
        if not inner:
            done.add(at)
            order.append(at)
            continue
        open_rows.add(at)
        waiting += [at, *inner]
    places = {at: place for place, at in enumerate(reversed(order))}
    moved = [rows[at] for at in places]
    return [places.get(root, root) for root in roots], [
        (*row[:4], places.get(row[4], row[4]), places.get(row[5], row[5])) for row in moved
    ]


def _rows(asked: _Question, kind: npt.DTypeLike) -> list[_Row]:
    """A node of the model, one row for each member where it asks for a set."""
    yes, no, feature, missing = asked.yes, asked.no, asked.feature, asked.missing
    number: Any = np.dtype(kind).type
    before = [
        math.nan if value == -math.inf else float(np.nextafter(number(value), number(-math.inf)))
        for value in asked.values
    ]
    match asked.mode:
        case "LEQ":
            return [(feature, asked.values[0], False, missing, yes, no)]
        case "LT":
            return [(feature, before[0], False, missing, yes, no)]
        case "GT":
            return [(feature, asked.values[0], False, not missing, no, yes)]
        case "GTE":
            return [(feature, before[0], False, not missing, no, yes)]
        case "NEQ":
            return [(feature, asked.values[0], True, False, no, yes)]
        case "EQ" | "MEMBER":
            return [(feature, v, True, missing, yes, no) for v in asked.values or (math.nan,)]
    raise NotSupported(f"a node of the mode {asked.mode!r}")
