"""TreeEnsemble: decision trees whose leaves vote for targets, packed for traversal without
branches.

Every slot of the arrays is an inner node or a leaf; the slots of a tree are contiguous, in
breadth-first order. The two children of a node are a pair of adjacent slots. A row moves to the
second child if its feature is less than the node's split, else (also for NaN) to the first child. A
leaf has split -∞ and is its own first child, so that a row stays there. The number of steps is
therefore the depth of the tree for every row, and the rows' comparisons do not wait for each other.
`links` holds the slot of the first child, shifted left by `bits`, plus the feature's number.
Feature f + `negated` is feature f with the opposite sign, by which a node sends NaN to the other
child; `negated` is 0 if there are none.

`leaves` maps slots to numbers of leaves. The votes of leaf l are row l of a matrix, or, if most of
the matrix would be empty, entries first[l] to first[l + 1] of a list. A forest is `uneven` if most
paths are much shorter than the depth. The number of trees is padded to a multiple of `LANES` by
leaves without votes. The importer (`rewrites/forest_layout.py`) converts all forms of ONNX to this
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from farrier.ir.dim import ceildiv
from farrier.ir.expr import BinaryOp
from farrier.ir.graph import Node
from farrier.ir.types import DType, TensorType
from farrier.ops.builder import attributes_of
from farrier.ops.nest import LoopBuilder, Tensor, Variable
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
from farrier.ops.scalar import Scalar, bits, both, cast, maximum, minimum, number, unequal

LANES = 8  # Walks at once, which hide the latency of a step; their slots fill the registers.
_CHUNK = 32  # Rows that visit a tree one after the other while it is in the nearest cache.
_STEPS = 4  # Steps of an uneven forest for each test of whether a lane has moved.
_VOTES = 6  # The position of the votes among the inputs.
COMBINE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x, votes = required(types, 0), required(types, _VOTES)
    if x.rank != 2 or any(required(types, place).rank != 1 for place in range(1, _VOTES)):
        raise Mismatch(f"its input {x.shape} is not a matrix, or its slots are not vectors")
    if votes.rank != (1 if len(types) > _VOTES + 1 else 2):
        raise Mismatch(f"votes of the shape {votes.shape}")
    if attrs["aggregate"] not in COMBINE:
        raise Mismatch(f"votes that are aggregated by {attrs['aggregate']!r}")
    return (TensorType(x.dtype, (x.shape[0], int_attr(attrs, "count"))),)


def initial(aggregate: str, dtype: np.dtype[Any]) -> float:
    """Return the initial value of a target's total, before any votes are aggregated."""
    largest = float(np.finfo(dtype).max)
    return {"sum": 0.0, "min": largest, "max": -largest}[aggregate]


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x, roots, depths, splits, links, leaves, votes = (present(arrays, i) for i in range(_VOTES + 1))
    trees, width, negated = (int_attr(attrs, name) for name in ("trees", "bits", "negated"))
    if negated:
        x = np.concatenate([x[:, :negated], -x[:, :negated]], axis=1)
    at = np.tile(roots[:trees], (len(x), 1))
    rows, mask = np.arange(len(x))[:, None], (1 << width) - 1
    for _ in range(int(depths.max(initial=0))):
        features = (links[at] & mask).astype(np.int64)
        at = (links[at] >> width).astype(np.int64) + (x[rows, features] < splits[at])
    aggregate = str(attrs["aggregate"])
    combine = COMBINE[aggregate]
    start = initial(aggregate, x.dtype)
    totals = np.full((len(x), int_attr(attrs, "count")), start, x.dtype)
    for tree in range(trees):
        reached = leaves[at[:, tree]]
        if votes.ndim == 2:
            totals = combine(totals, votes[reached])
            continue
        first, targets = present(arrays, _VOTES + 1), present(arrays, _VOTES + 2)
        for total, leaf in zip(totals, reached.tolist(), strict=True):
            for vote in range(first[leaf], first[leaf + 1]):
                total[targets[vote]] = combine(total[targets[vote]], votes[vote])
    return (totals.astype(x.dtype),)


@dataclasses.dataclass(frozen=True)
class _Forest:
    """The operands and attributes of a TreeEnsemble in a nest."""

    roots: Tensor
    depths: Tensor
    splits: Tensor
    links: Tensor
    leaves: Tensor
    votes: Tensor
    first: Tensor | None
    targets: Tensor | None
    count: int
    bits: int
    aggregate: str
    is_uneven: bool

    @staticmethod
    def of(nest: LoopBuilder, node: Node) -> _Forest:
        attrs = attributes_of(node)
        return _Forest(
            roots=nest.input(1),
            depths=nest.input(2),
            splits=nest.input(3),
            links=nest.input(4),
            leaves=nest.input(5),
            votes=nest.input(_VOTES),
            first=nest.optional(_VOTES + 1),
            targets=nest.optional(_VOTES + 2),
            count=int_attr(attrs, "count"),
            bits=int_attr(attrs, "bits"),
            aggregate=str(attrs["aggregate"]),
            is_uneven=bool(int_attr(attrs, "uneven")),
        )

    def combined(self, total: Scalar, vote: Scalar) -> Scalar:
        if self.aggregate == "sum":
            return total + vote
        return minimum(total, vote) if self.aggregate == "min" else maximum(total, vote)


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Write the loops over chunks of rows. `LANES` rows of a chunk descend a tree together, tree
    after tree; each remaining row descends `LANES` trees together. Both add votes in the order of
    the trees, so a row's result does not depend on the other rows."""
    attrs = attributes_of(node)
    x, out, forest = nest.input(0), nest.output(0), _Forest.of(nest, node)
    rows = x.shape[0]
    with nest.for_(ceildiv(rows, _CHUNK), "chunk") as chunk:
        start = nest.let(chunk * _CHUNK, "start")
        held = nest.let(minimum(number(rows, DType.I64) - start, _CHUNK), "held")
        totals = nest.local("totals", (_CHUNK, forest.count), x.dtype)
        zero = initial(forest.aggregate, x.dtype.numpy)
        with nest.points(totals.shape) as at:
            totals[at] = number(zero, x.dtype)
        features, base = _signed(nest, x, start, held, int_attr(attrs, "negated"))
        grouped = nest.let(_whole(held), "grouped")
        with nest.for_(int_attr(attrs, "trees"), "tree") as tree:
            row = nest.variable(number(0, DType.I64), "row")
            with nest.while_(row.value < grouped):
                _rows(nest, forest, features, base, row.value, tree, totals)
                row.value = row.value + LANES
        single = nest.variable(grouped, "single")
        with nest.while_(single.value < held):
            with nest.for_(ceildiv(forest.roots.shape[0], LANES), "group") as group:
                _trees(nest, forest, features, base, single.value, group, totals)
            single.value = single.value + 1
        with nest.points(totals.shape) as (place, target), nest.if_(place < held):
            out[start + place, target] = totals[place, target]


def _whole(held: Scalar) -> Scalar:
    """Return `held`, rounded down to a multiple of LANES."""
    return bits(BinaryOp.BIT_AND, held, -LANES)


def _signed(
    nest: LoopBuilder, x: Tensor, start: Scalar, held: Scalar, negated: int
) -> tuple[Tensor, Scalar]:
    """Return the tensor from which a chunk's features are read, and the index of the chunk's first
    row in it. It is the input itself or, if some features are needed with the opposite sign, a copy
    that contains the features with both signs."""
    if not negated:
        return x, start
    both_signs = nest.local("features", (_CHUNK, 2 * negated), x.dtype)
    with nest.for_(_CHUNK, "place") as place, nest.if_(place < held):
        with nest.for_(negated, "feature") as feature:
            both_signs[place, feature] = x[start + place, feature]
        with nest.for_(negated, "feature") as feature:
            both_signs[place, feature + negated] = -x[start + place, feature]
    return both_signs, number(0, DType.I64)


def _step(nest: LoopBuilder, forest: _Forest, at: Scalar, features: Tensor, row: Scalar) -> Scalar:
    """Return the slot to which a row moves from the slot `at`."""
    link = nest.let(forest.links[at], "link")
    mask = (1 << forest.bits) - 1
    feature = cast(bits(BinaryOp.BIT_AND, link, mask), DType.I64)
    pair = cast(bits(BinaryOp.SHR, link, forest.bits), DType.I64)
    return pair + cast(features[row, feature] < forest.splits[at], DType.I64)


def _rows(
    nest: LoopBuilder,
    forest: _Forest,
    features: Tensor,
    base: Scalar,
    row: Scalar,
    tree: Scalar,
    totals: Tensor,
) -> None:
    """Write the loops by which `LANES` rows descend one tree, beginning with `row`, and add the
    votes of their leaves to `totals`."""
    at = nest.registers("at", (LANES,), DType.I64)
    root = nest.let(forest.roots[tree], "root")
    with nest.unrolled(LANES) as lane:
        at[lane] = root
    level = nest.variable(forest.depths[tree], "level")
    _walk(nest, forest, at, level, features, lambda lane: base + row + lane)
    with nest.unrolled(LANES) as lane:
        _vote(nest, forest, at[lane], totals, row + lane)


def _trees(
    nest: LoopBuilder,
    forest: _Forest,
    features: Tensor,
    base: Scalar,
    row: Scalar,
    group: Scalar,
    totals: Tensor,
) -> None:
    """Write the loops by which one row descends the `LANES` trees of a group and adds the votes of
    their leaves to `totals`."""
    at = nest.registers("at", (LANES,), DType.I64)
    level = nest.variable(number(0, DType.I64), "level")
    with nest.unrolled(LANES) as lane:
        at[lane] = forest.roots[group * LANES + lane]
        level.value = maximum(level.value, forest.depths[group * LANES + lane])
    _walk(nest, forest, at, level, features, lambda lane: base + row)
    with nest.unrolled(LANES) as lane:
        _vote(nest, forest, at[lane], totals, row)


def _walk(
    nest: LoopBuilder,
    forest: _Forest,
    at: Tensor,
    level: Variable,
    features: Tensor,
    row_of: Callable[[Scalar], Scalar],
) -> None:
    """Write the loop that moves the slots `at` of all lanes down by `level` steps; `row_of` returns
    a lane's row of features. In an uneven forest, the loop ends early if no lane moved in its last
    step."""
    if not forest.is_uneven:
        with nest.while_(level.value > 0):
            with nest.unrolled(LANES) as lane:
                at[lane] = _step(nest, forest, at[lane], features, row_of(lane))
            level.value = level.value - 1
        return
    moved = nest.variable(number(1, DType.I64), "moved")
    with nest.while_(both(level.value > 0, unequal(moved.value, 0))):
        for _ in range(_STEPS - 1):
            with nest.unrolled(LANES) as lane:
                at[lane] = _step(nest, forest, at[lane], features, row_of(lane))
        moved.value = number(0, DType.I64)
        with nest.unrolled(LANES) as lane:
            slot = nest.let(_step(nest, forest, at[lane], features, row_of(lane)), "slot")
            change = bits(BinaryOp.BIT_XOR, slot, at[lane])
            moved.value = bits(BinaryOp.BIT_OR, moved.value, change)
            at[lane] = slot
        level.value = level.value - _STEPS


def _vote(nest: LoopBuilder, forest: _Forest, at: Scalar, totals: Tensor, row: Scalar) -> None:
    """Add the votes of the leaf in the slot `at` to a row's totals."""
    leaf = nest.let(cast(forest.leaves[at], DType.I64), "leaf")
    if forest.first is None or forest.targets is None:
        with nest.for_(forest.count, "target") as target:
            total = totals[row, target]
            totals[row, target] = forest.combined(total, forest.votes[leaf, target])
        return
    vote = nest.variable(forest.first[leaf], "vote")
    with nest.while_(vote.value < forest.first[leaf + 1]):
        target = nest.let(forest.targets[vote.value], "target")
        totals[row, target] = forest.combined(totals[row, target], forest.votes[vote.value])
        vote.value = vote.value + 1


OPERATORS: tuple[Operator, ...] = (
    Operator("TreeEnsemble", Kind.NEST, _infer, _reference, None, nest=_nest),
)
