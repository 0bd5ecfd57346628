"""Sequences and optionals → the tensors in them: which those are is known while importing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.importer.limits import MAX_NODES
from farrier.importer.names import Absent, Entry
from farrier.importer.names import Sequence as Tensors
from farrier.importer.raw import RawNode
from farrier.importer.rewrites import slices
from farrier.importer.scope import Regions, ints
from farrier.ir.dim import Extent, number
from farrier.ops import Mismatch, NotStatic, NotSupported
from farrier.ops.operator import normal_axis


def empty(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    return _gives(node, Tensors(()), scope)


def construct(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    return _gives(node, Tensors(tuple(map(scope.entry, node.inputs))), scope)


def at(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    items = _items(node.inputs[0], scope)
    return _gives(node, items[_position(node, 1, len(items), scope)], scope)


def insert(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    items = _items(node.inputs[0], scope)
    where = _position(node, 2, len(items), scope, spare=1) if node.input(2) else len(items)
    return _gives(
        node, Tensors((*items[:where], scope.entry(node.inputs[1]), *items[where:])), scope
    )


def erase(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    items = _items(node.inputs[0], scope)
    where = _position(node, 1, len(items), scope) if node.input(1) else len(items) - 1
    return _gives(node, Tensors((*items[:where], *items[where + 1 :])), scope)


def length(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    count = len(_items(node.inputs[0], scope))
    return _gives(node, scope.entry(scope.constant(ints(count))), scope)


def split(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    """Parts of given lengths, or of one length but for the last; without any, single slices, which
    lose their axis where keepdims is 0."""
    name = node.inputs[0]
    shape = scope.shape(name)
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    whole = number(shape[axis])
    if whole > MAX_NODES:
        raise NotSupported(f"an axis of {whole} cut into a sequence")
    lengths: Sequence[Extent] = [1] * whole
    if node.input(1):
        lengths = _lengths(node.inputs[1], whole, scope)
    if sum(lengths, start=0) != whole or any(length < 0 for length in lengths):
        raise Mismatch(f"parts of the lengths {lengths} of an axis of {whole}")
    axes, parts = scope.constant(ints([axis])), []
    start: Extent = 0
    for extent in lengths:
        ends = (scope.constant(ints([end])) for end in (start, start + extent))
        part = scope.add("Slice", name, *ends, axes)
        if not node.input(1) and not node.attrs.get("keepdims", 1):
            part = scope.add("Squeeze", part, axes)
        parts.append(scope.entry(part))
        start += extent
    return _gives(node, Tensors(tuple(parts)), scope)


def _lengths(name: str, whole: int, scope: Regions) -> Sequence[Extent]:
    """The lengths of parts: as given, or all as long as the one number, but for the last."""
    data = scope.data(name)
    if scope.shape(name) != ():
        if data is None:
            return slices.lengths(scope.elements(name), whole, scope)
        return [int(length) for length in data]
    if data is None:
        raise NotStatic("how many parts there are depends on data known only at run time", (name,))
    step = int(data)
    if step < 1:
        raise Mismatch(f"parts of the length {step}")
    return [min(step, whole - start) for start in range(0, whole, step)]


def concatenate(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    names = [scope.bind("", item) for item in _items(node.inputs[0], scope)]
    axis = node.attrs["axis"]
    if node.attrs.get("new_axis", 0):
        axes = scope.constant(ints([axis]))
        names = [scope.add("Unsqueeze", name, axes) for name in names]
    return _gives(node, scope.entry(scope.add("Concat", *names, axis=axis)), scope)


def map_body(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    """SequenceMap: the body for each item of the first input; of other sequences it gets the item
    at the same place, tensors as they are."""
    graph = node.attrs["body"]
    given = [scope.entry(name) for name in node.inputs]
    results: list[list[Entry]] = []
    for position in range(len(_items(node.inputs[0], scope))):
        items = [e.items[position] if isinstance(e, Tensors) else e for e in given]
        names = (info.name for info in graph.input)
        results.append(scope.inline(graph, dict(zip(names, items, strict=True)), opset))
    for position, name in enumerate(node.outputs):
        scope.bind(name, Tensors(tuple(result[position] for result in results)))
    return []


def optional(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    return _gives(node, scope.entry(node.inputs[0]) if node.input(0) else Absent(), scope)


def get_element(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    entry = scope.entry(node.inputs[0])
    if isinstance(entry, Absent):
        raise Mismatch("the optional holds nothing")
    return _gives(node, entry, scope)


def has_element(node: RawNode, opset: int, scope: Regions) -> list[RawNode]:
    holds = bool(node.input(0)) and not isinstance(scope.entry(node.inputs[0]), Absent)
    return _gives(node, scope.entry(scope.constant(np.array(holds))), scope)


def _gives(node: RawNode, entry: Entry, scope: Regions) -> list[RawNode]:
    """The node's output is `entry`, and nothing is left to compute."""
    scope.bind(node.outputs[0], entry)
    return []


def _items(name: str, scope: Regions) -> Sequence[Entry]:
    entry = scope.entry(name)
    if not isinstance(entry, Tensors):
        raise Mismatch(f"{name!r} is no sequence")
    return entry.items


def _position(node: RawNode, operand: int, count: int, scope: Regions, spare: int = 0) -> int:
    """A place in a sequence of `count`, or `spare` behind it, counted from the front."""
    data = scope.data(node.inputs[operand])
    if data is None:
        raise NotStatic(
            "a place in a sequence depends on data known only at run time", (node.inputs[operand],)
        )
    place = int(data.reshape(-1)[0])
    if not -count <= place < count + spare:
        raise Mismatch(f"place {place} of {count} in a sequence")
    return place if place >= 0 else place + count
