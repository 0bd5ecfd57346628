"""Rewrite operators on sequences and optionals to operators on their tensors.

The items of a sequence are either known tensors during the import, or stored in a single tensor
(`lists.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder.limits import MAX_NODES
from farrier.frontends.builder.listed import listed
from farrier.frontends.builder.names import Absent, Entry, Listed
from farrier.frontends.builder.names import Sequence as Tensors
from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.slices import lengths as lengths_of
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.rewrites import lists
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent
from farrier.ir.graph import Value
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis


def empty(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    return _bound(node, Tensors(()), scope)


def construct(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    return _bound(node, Tensors(tuple(map(scope.entry, node.inputs))), scope)


def at(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    entry, place = _sequence(node, 1, scope)
    if isinstance(entry, Listed):
        return _bound(node, lists.at(entry, place, scope), scope)
    return _bound(node, entry.items[_position(node, 1, len(entry.items), scope)], scope)


def insert(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    entry, place = _sequence(node, 2, scope)
    item = scope.entry(node.inputs[1])
    if isinstance(entry, Listed):
        if not isinstance(item, Value):
            raise NotSupported("an item that is not a tensor, of a sequence of unknown length,")
        return _bound(node, lists.insert(entry, item, place, scope), scope)
    items = entry.items
    where = _position(node, 2, len(items), scope, spare=1) if node.input(2) else len(items)
    return _bound(node, Tensors((*items[:where], item, *items[where:])), scope)


def erase(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    entry, place = _sequence(node, 1, scope)
    if isinstance(entry, Listed):
        return _bound(node, lists.erase(entry, place, scope), scope)
    items = entry.items
    where = _position(node, 1, len(items), scope) if node.input(1) else len(items) - 1
    return _bound(node, Tensors((*items[:where], *items[where + 1 :])), scope)


def length(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    entry = _entry(node.inputs[0], scope)
    count = lists.length(entry) if isinstance(entry, Listed) else len(entry.items)
    return _bound(node, scope.entry(scope.constant(ints(count))), scope)


def _sequence(node: RawNode, operand: int, scope: ImportScope) -> tuple[Tensors | Listed, str]:
    """Return the sequence that a node reads as its first operand, and the position in operand
    `operand` as an i64 scalar, "" if omitted. If the position is computed at run time, the sequence
    is converted to a `Listed`, to which the items in operands 1 to `operand` - 1 can be added."""
    entry, name = _entry(node.inputs[0], scope), node.input(operand)
    if not name:
        return entry, ""
    place = scope.add("Cast", name, to="i64")
    if scope.shape(place) != ():
        place = scope.add("Reshape", place, [])
    if isinstance(entry, Tensors) and scope.data(name) is None:
        more = [
            item.type
            for item in map(scope.entry, node.inputs[1:operand])
            if isinstance(item, Value)
        ]
        entry = listed(entry.items, more, (), scope)
    return entry, place


def split(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SplitToSequence: split into parts of listed lengths, or of equal length (the last may
    be shorter). Without lengths, into slices of length 1, whose axis is removed if keepdims is 0.
    """
    name, split_name = node.inputs[0], node.input(1)
    shape = scope.shape(name)
    axis = normal_axis(node.attrs.get("axis", 0), len(shape))
    extent, keeps_axis = shape[axis], bool(split_name) or bool(node.attrs.get("keepdims", 1))
    is_many = bool(split_name) and scope.shape(split_name) != ()
    count = scope.shape(split_name)[0] if is_many else extent
    if not isinstance(extent, int) or not isinstance(count, int) or max(extent, count) > MAX_NODES:
        return _bound(node, _open_split(name, axis, split_name, keeps_axis, scope), scope)
    lengths: Sequence[Extent] = [1] * extent
    if split_name:
        declared = _lengths(split_name, extent, scope)
        if declared is None:
            return _bound(node, _open_split(name, axis, split_name, keeps_axis, scope), scope)
        lengths = declared
    if sum(lengths, start=0) != extent or any(length < 0 for length in lengths):
        raise Mismatch(f"parts of the lengths {lengths} of an axis of {extent}")
    axes, parts = scope.constant(ints([axis])), []
    start: Extent = 0
    for length in lengths:
        ends = (scope.constant(ints([end])) for end in (start, start + length))
        part = scope.add("Slice", name, *ends, axes)
        if not keeps_axis:
            part = scope.add("Squeeze", part, axes)
        parts.append(scope.entry(part))
        start += length
    return _bound(node, Tensors(tuple(parts)), scope)


def _open_split(
    name: str, axis: int, split_name: str, keeps_axis: bool, scope: ImportScope
) -> Listed:
    if split_name and scope.shape(split_name) != ():
        return lists.split_by(name, axis, split_name, scope)
    step = scope.elements(split_name)[0] if split_name else 1
    return lists.split(name, axis, step, keeps_axis, scope)


def _lengths(name: str, extent: int, scope: ImportScope) -> Sequence[Extent] | None:
    """Return the lengths of the parts of an axis. For a vector `name`, these are its elements; for
    a scalar, they all equal it, except that the last may be smaller. Return None if the number of
    parts is known only at run time."""
    data = scope.data(name)
    if scope.shape(name) != ():
        if data is None:
            return lengths_of(scope.elements(name), extent, scope)
        return [int(length) for length in data]
    if data is None:
        return None
    step = int(data)
    if step < 1:
        raise Mismatch(f"parts of the length {step}")
    return [min(step, extent - start) for start in range(0, extent, step)]


def concatenate(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    entry, axis = _entry(node.inputs[0], scope), int(node.attrs["axis"])
    is_new = bool(node.attrs.get("new_axis", 0))
    if isinstance(entry, Listed):
        return _bound(node, lists.concatenate(entry, axis, is_new, scope), scope)
    names = [scope.bind("", item) for item in entry.items]
    if is_new:
        axes = scope.constant(ints([axis]))
        names = [scope.add("Unsqueeze", name, axes) for name in names]
    return _bound(node, scope.entry(scope.add("Concat", *names, axis=axis)), scope)


def map_body(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite SequenceMap: run the body for each item of the first sequence, together with the
    items at the same position of the other sequences. An operand that is a tensor is passed to each
    run."""
    graph = node.attrs["body"]
    operands = [scope.entry(name) for name in node.inputs]
    results: list[list[Entry]] = []
    for position in range(len(_items(node.inputs[0], scope))):
        items = [e.items[position] if isinstance(e, Tensors) else e for e in operands]
        names = (info.name for info in graph.input)
        results.append(scope.inline(graph, dict(zip(names, items, strict=True)), opset))
    for position, name in enumerate(node.outputs):
        scope.bind(name, Tensors(tuple(result[position] for result in results)))
    return []


def optional(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    return _bound(node, scope.entry(node.inputs[0]) if node.input(0) else Absent(), scope)


def get_element(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    entry = scope.entry(node.inputs[0])
    if isinstance(entry, Absent):
        raise Mismatch("the optional holds nothing")
    return _bound(node, entry, scope)


def has_element(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    holds = bool(node.input(0)) and not isinstance(scope.entry(node.inputs[0]), Absent)
    return _bound(node, scope.entry(scope.constant(np.array(holds))), scope)


def _bound(node: RawNode, entry: Entry, scope: ImportScope) -> list[RawNode]:
    """Bind the node's output to `entry`. Return [], since no node remains to be added."""
    scope.bind(node.outputs[0], entry)
    return []


def _entry(name: str, scope: ImportScope) -> Tensors | Listed:
    entry = scope.entry(name)
    if not isinstance(entry, Tensors | Listed):
        raise Mismatch(f"{name!r} is no sequence")
    return entry


def _items(name: str, scope: ImportScope) -> Sequence[Entry]:
    entry = _entry(name, scope)
    if isinstance(entry, Listed):
        raise NotSupported("a SequenceMap over a sequence of unknown length")
    return entry.items


def _position(node: RawNode, operand: int, count: int, scope: ImportScope, spare: int = 0) -> int:
    """Return the constant position in operand `operand`, counted from the front. Raises Mismatch if
    it is outside of a sequence of `count` items, or more than `spare` positions after it."""
    data = scope.data(node.inputs[operand])
    assert data is not None
    place = int(data.reshape(-1)[0])
    if not -count <= place < count + spare:
        raise Mismatch(f"place {place} of {count} in a sequence")
    return place if place >= 0 else place + count
