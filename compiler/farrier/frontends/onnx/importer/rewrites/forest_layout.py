"""Convert the trees of a model to the packed form of the operator TreeEnsemble.

First, every node becomes a comparison x < s or -x < s: a row for which it holds moves to the second
child of the node, any other row, or one with NaN, to the first. The sign thus decides where NaN
goes. A test for equality takes two nodes, and a test for membership in a set a binary search. Then
nodes are numbered tree by tree and level by level. The code is vectorized in numpy, because forests
have millions of nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.ops import Mismatch
from farrier.ops.trees import COMBINE, LANES, initial

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER", "LEAF")
LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(len(MODES))
# A test for whether all lanes have arrived costs a quarter of a step, and the last of 8 lanes often
# walks most of a tree: it pays off in trees deeper than 8 with a mean leaf in their upper half.
_SHALLOW, _UNEVEN = 8, 0.5
_FEW_TARGETS = 4  # The votes of a leaf for up to 4 targets are a row even if most of it is empty.


@dataclasses.dataclass(frozen=True)
class Votes:
    """The votes of all leaves. Vote i of leaf `leaves[i]` is for target `targets[i]`, with the
    weight `weights[i]`."""

    leaves: Ints
    targets: Ints
    weights: Array

    def of_trees(self, trees: int) -> Votes:
        return dataclasses.replace(self, weights=self.weights / trees)


@dataclasses.dataclass(frozen=True)
class Nodes:
    """The inner nodes of a model's trees, one array per property. Node i sends a row to the child
    `yes[i]` if its test of feature `features[i]` against `values[i]` is true, otherwise to `no[i]`.

    A child is the number of a node, or -1 - l for leaf l. `missing` is true if a row with NaN goes
    to `yes`. `sets` are the sets of values of the nodes with mode MEMBER, in order.
    """

    modes: Array
    features: Ints
    values: Array
    missing: Array
    yes: Ints
    no: Ints
    sets: Sequence[tuple[float, ...]] = ()

    def __len__(self) -> int:
        return len(self.modes)


@dataclasses.dataclass(frozen=True)
class Packed:
    """The packed trees: the operands of TreeEnsemble after the first, and its attributes."""

    arrays: tuple[Array, ...]
    attrs: dict[str, Any]


def pack(
    nodes: Nodes, roots: Ints, votes: Votes, count: int, aggregate: str, dtype: npt.DTypeLike
) -> Packed:
    """Return the packed form of trees that vote for `count` targets. `roots` are the trees' root
    nodes, and `aggregate` ("sum", "min" or "max") combines the votes for a target. Raises Mismatch
    if a child does not exist, or is its own ancestor."""
    kind = np.dtype(dtype)
    for children in (nodes.yes, nodes.no, roots):
        if children.max(initial=-1) >= len(nodes):
            raise Mismatch(f"a node {children.max()} of {len(nodes)}")
    steps = _steps(_comparisons(nodes), kind)
    owner, levels, depths = _reached(steps, roots)
    trees = max(len(roots), 1)
    order = np.lexsort((levels, owner))[np.count_nonzero(owner < 0) :]
    pairs = np.full(len(owner), -1)
    pairs[order] = 2 * (owner[order] + 1 + np.arange(len(order)))
    tops = 2 * (np.arange(trees) + np.searchsorted(owner[order], np.arange(trees)))
    slots = 2 * (trees + len(order))
    none = -1 - int(max(_last_leaf(steps, roots), votes.leaves.max(initial=-1)) + 1)
    held = np.full(slots, none)
    held[tops[: len(roots)]] = roots
    held[pairs[order]], held[pairs[order] + 1] = steps.first[order], steps.second[order]
    features = int(steps.features[order].max(initial=0)) + 1
    negated = features if steps.negated[order].any() else 0
    columns = steps.features + negated * steps.negated
    bits = max(int(columns[order].max(initial=0)).bit_length(), 1)
    inner = np.flatnonzero(held >= 0)
    asked = held[inner]
    starts, below = np.arange(slots), np.zeros(slots, np.int64)
    starts[inner], below[inner] = pairs[asked], columns[asked]
    splits = np.full(slots, -np.inf)
    splits[inner] = steps.splits[asked]
    held[inner] = none
    numbers, leaves = np.unique(held, return_inverse=True)
    links = (starts << bits) + below
    padding = -trees % LANES
    wide = links.astype(np.uint32 if slots << bits < 1 << 32 else np.int64)
    arrays = (
        np.append(tops, np.full(padding, tops[0] + 1)),
        np.append(depths, np.zeros(trees + padding - len(depths), np.int64)),
        splits.astype(kind),
        wide,
        leaves.astype(np.uint32),
        *_votes(votes, -1 - numbers, count, aggregate, kind),
    )
    attrs = {"count": count, "aggregate": aggregate, "trees": trees, "bits": bits}
    children = np.concatenate([steps.first[order], steps.second[order]])
    ends = (np.tile(levels[order], 2) + 1)[children < 0]
    is_uneven = depths.max(initial=0) > _SHALLOW and ends.mean() < _UNEVEN * depths.mean()
    return Packed(arrays, attrs | {"negated": negated, "uneven": int(is_uneven)})


@dataclasses.dataclass(frozen=True)
class _Comparisons:
    """Nodes with the test feature <= value or, where `strict` is true, feature < value. The fields
    have the meaning that they have in `Nodes`."""

    features: Ints
    values: Array
    strict: Array
    missing: Array
    yes: Ints
    no: Ints

    def with_more(self, *columns: Sequence[Any] | Array) -> _Comparisons:
        """Return these nodes with further nodes appended; `columns` has the values of each field
        for them."""
        fields = (self.features, self.values, self.strict, self.missing, self.yes, self.no)
        return _Comparisons(
            *(
                np.append(field, np.array(column, field.dtype))
                for field, column in zip(fields, columns, strict=True)
            )
        )


def _comparisons(nodes: Nodes) -> _Comparisons:
    """Convert nodes of all modes to comparisons. A node keeps its number, and additional nodes are
    appended."""
    values, missing = nodes.values.astype(np.float64), nodes.missing.astype(bool)
    # NaN is not at most a number, and no number is greater than NaN.
    unordered = np.isnan(values) & np.isin(nodes.modes, (GTE, GT))
    modes = np.where(unordered, LEQ, nodes.modes)
    opposite = np.isin(modes, (GTE, GT, NEQ))
    missing = np.where(modes == NEQ, False, missing ^ opposite)
    yes, no = np.where(opposite, nodes.no, nodes.yes), np.where(opposite, nodes.yes, nodes.no)
    strict = np.isin(modes, (LT, GTE))
    compared = _Comparisons(nodes.features, values, strict, missing, yes, no)
    equal = np.flatnonzero((modes == EQ) | (modes == NEQ))
    if len(equal):  # A feature that is at most the value is not equal to it if it is less.
        never, equals = np.zeros(len(equal), bool), yes[equal]
        compared.yes[equal] = len(modes) + np.arange(len(equal))
        compared = compared.with_more(
            nodes.features[equal], values[equal], ~never, never, no[equal], equals
        )
    return _with_sets(compared, nodes)


def _with_sets(compared: _Comparisons, nodes: Nodes) -> _Comparisons:
    """Return `compared` with each node that tests for membership replaced by a binary search over
    its set."""
    places = np.flatnonzero(nodes.modes == MEMBER)
    rows: list[tuple[int, float, bool, bool, int, int]] = []
    first = len(compared.features)

    def search(members: Sequence[float], i: int) -> tuple[int, float, bool, bool, int, int]:
        """Return the root of the binary search over `members` for node i; its other nodes are
        appended to `rows`."""
        feature, yes, no = (int(field[i]) for field in (nodes.features, nodes.yes, nodes.no))
        if not members:
            return feature, np.nan, False, bool(nodes.missing[i]), yes, no
        if len(members) == 1:
            rows.append((feature, members[0], True, False, no, yes))
            again = first + len(rows) - 1
            return feature, members[0], False, bool(nodes.missing[i]), again, no
        half = len(members) // 2
        below, above = search(members[:half], i), search(members[half:], i)
        rows.extend((below, above))
        last = first + len(rows)
        return feature, members[half], True, False, last - 2, last - 1

    begin = [
        search(sorted({value for value in members if value == value}), int(i))
        for i, members in zip(places, nodes.sets, strict=True)
    ]
    if not begin:
        return compared
    fields = (
        compared.features,
        compared.values,
        compared.strict,
        compared.missing,
        compared.yes,
        compared.no,
    )
    for field, column in zip(fields, zip(*begin, strict=True), strict=True):
        field[places] = column
    return compared.with_more(*zip(*rows, strict=True)) if rows else compared


@dataclasses.dataclass(frozen=True)
class _Steps:
    """Nodes with the test x < split, or if `negated`, -x < split. A row for which it holds moves to
    child `second`, any other row, or one with NaN, to child `first`."""

    features: Ints
    negated: Array
    splits: Array
    first: Ints
    second: Ints


def _steps(asked: _Comparisons, kind: np.dtype[Any]) -> _Steps:
    """Convert comparisons to strict comparisons x < s or -x < s. The sign is chosen so that a row
    with NaN, for which both are false, goes to the right child. `kind` is the dtype of the
    features."""
    negated = asked.missing  # x > v is -x < -v, and not true of NaN.
    values = np.where(negated, -asked.values, asked.values)
    closed = asked.strict == negated
    # A comparison with NaN that counts NaN as a yes is a test for NaN.
    whole = (closed & (values == np.inf)) | (np.isnan(values) & negated)
    splits = np.where(whole, np.inf, _least(values, closed, kind))
    first = np.where(negated, asked.yes, asked.no)
    second = np.where(negated, asked.no, asked.yes)
    rest = np.flatnonzero(whole)  # True of all but NaN: x < ∞ or -x < ∞.
    again = len(values) + np.arange(len(rest))
    infinite = np.full(len(rest), np.inf)
    more = (asked.features[rest], ~negated[rest], infinite, first[rest], second[rest])
    first = first.copy()
    first[rest] = again
    fields = (asked.features, negated, splits, first, second)
    return _Steps(*(np.append(a, b) for a, b in zip(fields, more, strict=True)))


def _least(values: Array, closed: Array, kind: np.dtype[Any]) -> Array:
    """Return thresholds t of dtype `kind` that are equivalent to the values v: x < t is true
    exactly if x < v is, or x <= v where `closed` is true, for all x of dtype `kind`."""
    with np.errstate(over="ignore"):
        near = values.astype(kind)
        above = np.nextafter(near, kind.type(np.inf)).astype(np.float64)
    near = near.astype(np.float64)
    return np.where(np.where(closed, near > values, near >= values) | np.isnan(near), near, above)


def _reached(steps: _Steps, roots: Ints) -> tuple[Ints, Ints, Ints]:
    """Return three arrays: for each node the first tree that contains it (-1: none), for each node
    its level in that tree, and for each tree its depth. Raises Mismatch for a cycle."""
    count = len(steps.features)
    owner, levels, depths = np.full(count, -1), np.zeros(count, np.int64), np.zeros(len(roots), int)
    trees = np.flatnonzero(roots >= 0)
    at, level, seen = roots[trees], 0, 0
    while len(at):
        depths[trees] = level + 1
        fresh, where = np.unique(np.where(owner[at] < 0, at, -1), return_index=True)
        fresh, where = fresh[fresh >= 0], where[fresh >= 0]
        owner[fresh], levels[fresh] = trees[where], level
        seen += len(fresh)
        if level >= seen:
            raise Mismatch("its trees have a cycle")
        following = np.concatenate([steps.first[at], steps.second[at]])
        both = np.concatenate([trees, trees])
        keys = np.unique((both * count + following)[following >= 0])
        trees, at = np.divmod(keys, max(count, 1))
        level += 1
    return owner, levels, depths


def _last_leaf(steps: _Steps, roots: Ints) -> int:
    """Return the highest leaf number, or -1 without leaves."""
    lowest = min(int(a.min(initial=0)) for a in (steps.first, steps.second, roots))
    return -1 - lowest


def _votes(
    votes: Votes, leaves: Ints, count: int, aggregate: str, kind: np.dtype[Any]
) -> tuple[Array, ...]:
    """Return the votes of `leaves`, whose numbers are in descending order. If they are dense, this
    is a single matrix [leaves, targets]. Otherwise it is three arrays: the weights of all votes,
    the start of each leaf's votes in them, and their targets."""
    ascending = leaves[::-1]
    place = np.searchsorted(ascending, votes.leaves)
    used = np.isin(votes.leaves, leaves)
    rows = len(leaves) - 1 - place[used]
    targets, weights = votes.targets[used], votes.weights[used].astype(np.float64)
    if count <= _FEW_TARGETS or 2 * len(rows) >= len(leaves) * count:
        dense = np.full((len(leaves), count), initial(aggregate, kind))
        COMBINE[aggregate].at(dense, (rows, targets), weights)
        return (dense.astype(kind),)
    order = np.argsort(rows, kind="stable")
    first = np.searchsorted(rows[order], np.arange(len(leaves) + 1))
    return weights[order].astype(kind), first, targets[order]
