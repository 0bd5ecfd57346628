"""Rewrite tree ensembles of ai.onnx.ml to the operator TreeEnsemble.

The attributes become arrays of nodes and votes, which `forest_layout` packs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.forest_layout import (
    LEAF,
    MEMBER,
    MODES,
    Nodes,
    Votes,
    pack,
)
from farrier.frontends.onnx.importer.rewrites.scores import finished, rows_of
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

Ints = npt.NDArray[np.int64]


def tree_ensemble(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite TreeEnsemble (since version 5): leaves are separate from nodes, and each has one
    vote."""
    a = node.attrs
    modes = np.asarray(a["nodes_modes"], np.int64)
    if modes.min(initial=0) < 0 or modes.max(initial=0) > MEMBER:
        raise NotSupported(f"a node of the mode {modes.max()}")
    yes, no = (
        np.where(
            _ints(a, f"nodes_{way}leafs", modes) != 0,
            -1 - _ints(a, f"nodes_{way}nodeids", modes),
            _ints(a, f"nodes_{way}nodeids", modes),
        )
        for way in ("true", "false")
    )
    missing = a.get("nodes_missing_value_tracks_true") or np.zeros(len(modes))
    sets = tuple(_members(a.get("membership_values"), int(np.count_nonzero(modes == MEMBER))))
    features, splits = _ints(a, "nodes_featureids", modes), np.asarray(a["nodes_splits"])
    nodes = Nodes(modes, features, splits, _sized(missing, modes), yes, no, sets)
    targets, weights = np.asarray(a["leaf_targetids"], np.int64), np.asarray(a["leaf_weights"])
    votes = Votes(np.arange(len(targets)), targets, _sized(weights, targets))
    roots = np.asarray(a["tree_roots"], np.int64)
    trees = np.zeros(len(modes), np.int64)
    aggregate = _AGGREGATES[a.get("aggregate_function", 1)]
    transform = _TRANSFORMS[a.get("post_transform", 0)]
    node.inputs[0] = rows_of(node.inputs[0], scope)
    forest = Forest(roots, nodes, votes, trees)
    scores = forest.scores(node, scope, aggregate, a.get("n_targets", 1))
    return finished(node, scores, transform, scope)


def tree_ensemble_regressor(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite TreeEnsembleRegressor (before version 5): leaves are nodes, and votes refer to them
    by the numbers of tree and node."""
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
    """The trees of an ensemble: their root nodes, inner nodes and votes. Before version 5 of the
    operators, leaves are numbered together with the nodes, and `trees` has the number of the tree,
    from 0, of each node and leaf."""

    roots: Ints
    nodes: Nodes
    votes: Votes
    trees: Ints

    @staticmethod
    def of(a: dict[str, Any], votes: str) -> Forest:
        """Return the trees in the attributes `a` of versions before 5. The names of the attributes
        for votes begin with `votes`, which is "target" or "class"."""
        places = _Places(a["nodes_treeids"], a["nodes_nodeids"])
        names = [mode.removeprefix("BRANCH_") for mode in a["nodes_modes"]]
        numbers = {name: number for number, name in enumerate(MODES)}
        if unknown := {*names} - numbers.keys():
            raise NotSupported(f"a node of the mode {min(unknown)!r}")
        modes = _sized([numbers[name] for name in names], places.trees)
        own, is_leaf = np.arange(len(modes)), modes == LEAF
        refs = np.where(is_leaf, -1 - own, own)
        yes, no = -1 - own, -1 - own
        inner = np.flatnonzero(~is_leaf)
        for children, way in ((yes, "true"), (no, "false")):
            ids = _ints(a, f"nodes_{way}nodeids", modes)[inner]
            children[inner] = refs[places.of(places.trees[inner], ids)]
        missing = a.get("nodes_missing_value_tracks_true") or np.zeros(len(modes))
        features = _ints(a, "nodes_featureids", modes)
        nodes = Nodes(
            modes,
            np.where(is_leaf, 0, features),
            _sized(_floats(a, "nodes_values"), modes),
            _sized(missing, modes),
            yes,
            no,
        )
        leaves = places.named(a[f"{votes}_treeids"], a[f"{votes}_nodeids"])
        targets = _ints(a, f"{votes}_ids", leaves)
        cast = Votes(leaves, targets, _sized(_floats(a, f"{votes}_weights"), leaves))
        return Forest(refs[places.first], nodes, cast, places.trees)

    def scores(
        self,
        node: RawNode,
        scope: ImportScope,
        aggregate: str,
        count: int,
        votes: Votes | None = None,
    ) -> str:
        """Add a TreeEnsemble node, and return the name of its result: the aggregated votes,
        [examples, count], without base values. If `votes` is set, these votes replace the forest's
        own."""
        x, votes = node.inputs[0], self.votes if votes is None else votes
        dtype, features = scope.dtype(x), scope.shape(x)[-1]
        asked = self.nodes.features
        if asked.min(initial=0) < 0 or not int(asked.max(initial=0)) < features:
            raise Mismatch(f"its nodes ask for features beyond the {features} of its input")
        if votes.targets.min(initial=0) < 0 or votes.targets.max(initial=0) >= count:
            raise Mismatch(f"its leaves vote for targets beyond {count}")
        if aggregate not in _AGGREGATES:
            raise Mismatch(f"an aggregate_function {aggregate!r}")
        if aggregate == "AVERAGE":
            votes = votes.of_trees(len(self.roots))
        how = "sum" if aggregate in ("SUM", "AVERAGE") else aggregate.lower()
        packed = pack(self.nodes, self.roots, votes, count, how, dtype.numpy)
        return scope.add("TreeEnsemble", x, *map(scope.constant, packed.arrays), **packed.attrs)

    def voted_scores(self, node: RawNode, scope: ImportScope, count: int) -> tuple[str, str | None]:
        """Return the names of two matrices [examples, classes]: the sums of the votes, and the
        numbers of votes. The latter is None if every example has a vote for every class."""
        if self._always_voted(count):
            return self.scores(node, scope, "SUM", count), None
        votes = self.votes
        counted = Votes(
            np.tile(votes.leaves, 2),
            np.append(votes.targets, votes.targets + count),
            np.append(votes.weights, np.ones(len(votes.weights))),
        )
        both = self.scores(node, scope, "SUM", 2 * count, counted)
        axis = scope.constant(np.array([1]))
        sums, counts = (
            scope.add("Slice", both, *(scope.constant(np.array([n])) for n in part), axis)
            for part in ((0, count), (count, 2 * count))
        )
        return sums, counts

    def _always_voted(self, count: int) -> bool:
        """Check whether for every class there is a tree in which every leaf votes for it."""
        is_leaf = self.nodes.modes == LEAF
        leaves = np.bincount(self.trees[is_leaf], minlength=int(self.trees.max(initial=0)) + 1)
        votes = np.unique(self.votes.leaves * count + self.votes.targets)
        voters, targets = np.divmod(votes, max(count, 1))
        voted = np.bincount(
            self.trees[voters] * count + targets, minlength=len(leaves) * count
        ).reshape(len(leaves), count)
        return bool((voted == leaves[:, None]).any(0).all())


class _Places:
    """An index that returns the position of a node in the model's lists, from the numbers of its
    tree and of the node. `first` are the positions of the first node of each tree, which is its
    root."""

    def __init__(self, trees: Any, nodes: Any) -> None:
        tree_ids, node_ids = np.asarray(trees, np.int64), np.asarray(nodes, np.int64)
        self._tree_ids, first, self.trees = np.unique(
            tree_ids, return_index=True, return_inverse=True
        )
        self._node_ids = np.unique(node_ids)
        self.first = np.sort(first)
        keys = self._keys(self.trees, _sized(node_ids, tree_ids))
        self._order = np.argsort(keys, kind="stable")
        self._keys_in_order = keys[self._order]
        if (self._keys_in_order[1:] == self._keys_in_order[:-1]).any():
            raise Mismatch("two nodes of a tree have the same number")

    def of(self, trees: Ints, nodes: Ints) -> Ints:
        """Return the positions of nodes. `trees` are the indices of their trees, from 0, and
        `nodes` their numbers in the tree. Raises Mismatch for a node that does not exist."""
        keys = self._keys(trees, nodes)
        at = np.minimum(np.searchsorted(self._keys_in_order, keys), len(self._order) - 1)
        if (bad := np.flatnonzero(self._keys_in_order[at] != keys)).size:
            raise Mismatch(f"a tree has no node {nodes[bad[0]]}")
        return self._order[at]

    def named(self, trees: Any, nodes: Any) -> Ints:
        """Return the positions of nodes. `trees` and `nodes` are the numbers that the model uses.
        Raises Mismatch for a tree or node that does not exist."""
        ids = np.asarray(trees, np.int64)
        if unknown := {*np.setdiff1d(ids, self._tree_ids).tolist()}:
            raise Mismatch(f"votes of a tree {min(unknown)} that has no nodes")
        return self.of(np.searchsorted(self._tree_ids, ids), _sized(nodes, ids))

    def _keys(self, trees: Ints, nodes: Ints) -> Ints:
        """Return a unique integer for each pair of tree and node; -1 for a node number that does
        not occur."""
        near = np.minimum(np.searchsorted(self._node_ids, nodes), len(self._node_ids) - 1)
        keys = trees * len(self._node_ids) + near
        return np.where(self._node_ids[near] == nodes, keys, -1)


def _sized(values: Any, others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a list attribute as an array; raises Mismatch if its length differs from that of
    `others`."""
    array = np.asarray(values)
    if array.shape != others.shape:
        raise Mismatch(f"a malformed forest: lists of {array.size} and {others.size} elements")
    return array


def _ints(a: dict[str, Any], name: str, others: npt.NDArray[Any]) -> Ints:
    return _sized(np.asarray(a[name], np.int64), others)


def base_values(a: dict[str, Any]) -> list[float]:
    """Return the base values by target, or an empty list if the model has none."""
    return _floats(a, "base_values") if {"base_values", "base_values_as_tensor"} & {*a} else []


def _floats(attrs: dict[str, Any], name: str) -> list[float]:
    """Return an attribute that is a list of floats or, under the name with `_as_tensor`, a
    tensor."""
    tensor = attrs.get(f"{name}_as_tensor")
    return list(attrs[name]) if tensor is None else tensor.reshape(-1).tolist()


def _members(values: npt.NDArray[Any] | None, count: int) -> Iterator[tuple[float, ...]]:
    """Yield the first `count` sets of a list in which each set ends with NaN."""
    members: list[float] = []
    for value in () if values is None else values.astype(np.float64).tolist():
        if not count:
            return
        if math.isnan(value):
            yield tuple(members)
            members, count = [], count - 1
        else:
            members.append(value)
    if count:
        raise Mismatch("a node that asks for members has none")
