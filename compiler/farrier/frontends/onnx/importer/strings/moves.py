"""Rewrite operators that move strings to the same operators on code points.

An array of code points has one axis more than the strings, the width, as its last axis. Most rules
only adapt axes and shapes, so that whole rows of code points move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.rewrites.known import constant
from farrier.frontends.builder.rewrites.numbers import Numbers
from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.frontends.onnx.importer.strings.codes import codes, is_strings, of_one_width
from farrier.ir.dim import Extent, product
from farrier.ops import NotStatic
from farrier.ops.operator import normal_axis, to_extents

Rule: TypeAlias = Callable[[RawNode, ImportScope], None]


def on_codes(node: RawNode, scope: ImportScope) -> RawNode | None:
    """Return the node on code points; None if it neither reads nor returns strings. Outputs that
    are strings get new names."""
    rule = _RULES.get(node.op)
    takes = node.op in _ONLY or any(is_strings(scope, name) for name in node.inputs)
    if rule is None or not takes:
        return None
    is_operand = _OPERANDS.get(node.op, slice(1))
    inputs = list(node.inputs)
    inputs[is_operand] = [codes(scope, name) for name in inputs[is_operand]]
    count = len(node.outputs) if node.op == "Split" else 1
    outputs = [scope.fresh() if name else "" for name in node.outputs[:count]]
    moved = dataclasses.replace(
        node, inputs=inputs, outputs=[*outputs, *node.outputs[count:]], attrs=dict(node.attrs)
    )
    rule(moved, scope)
    return moved


_ONLY = ("StringConcat", "StringSplit")  # All operands of these operators are strings.
_OPERANDS = {  # The operands that are strings; of other operators it is the first.
    "Concat": slice(None),
    "StringConcat": slice(None),
    "Where": slice(1, None),
}


def _rank(node: RawNode, scope: ImportScope) -> int:
    """Return the rank of the first operand, not counting the width."""
    return len(scope.shape(node.inputs[0])) - 1


def _width(node: RawNode, scope: ImportScope) -> Extent:
    return scope.shape(node.inputs[0])[-1]


def _along(node: RawNode, scope: ImportScope) -> None:
    """Change a negative attribute `axis` so that it counts from the front, because the width is an
    additional last axis."""
    if "axis" in node.attrs:
        node.attrs["axis"] = normal_axis(node.attrs["axis"], _rank(node, scope))


def _set_ints(node: RawNode, scope: ImportScope, position: int, values: Sequence[Extent]) -> None:
    node.inputs += [""] * (position + 1 - len(node.inputs))
    node.inputs[position] = scope.constant(ints(values))


def _axes(node: RawNode, scope: ImportScope, position: int) -> list[int] | None:
    """Return the axes in the attribute, which is removed, or in the operand at `position`, counted
    from the front; None if there are none."""
    axes = node.attrs.pop("axes", None)
    if axes is None:
        if not node.input(position):
            return None
        axes = constant(scope, node.inputs[position], "axes").reshape(-1).tolist()
    rank = _rank(node, scope) + (len(axes) if node.op == "Unsqueeze" else 0)
    return [normal_axis(axis, rank) for axis in axes]


def _squeeze(node: RawNode, scope: ImportScope) -> None:
    axes = _axes(node, scope, 1)
    if axes is None:
        shape = scope.shape(node.inputs[0])[:-1]
        axes = [axis for axis, extent in enumerate(shape) if extent == 1]
    _set_ints(node, scope, 1, axes)


def _unsqueeze(node: RawNode, scope: ImportScope) -> None:
    _set_ints(node, scope, 1, _axes(node, scope, 1) or [])


def _slice(node: RawNode, scope: ImportScope) -> None:
    axes = _axes(node, scope, 3)
    if axes is not None and "starts" in node.attrs:
        node.attrs["axes"] = tuple(axes)
    elif axes is not None:
        _set_ints(node, scope, 3, axes)


def _with_width(node: RawNode, scope: ImportScope) -> None:
    """Append the width to the target shape of Reshape and Expand."""
    if "shape" in node.attrs:
        node.attrs["shape"] = (*node.attrs["shape"], _width(node, scope))
        return
    target = scope.data(node.inputs[1])
    if target is None:
        raise NotStatic("its shape depends on data known only at run time", (node.inputs[1],))
    _set_ints(node, scope, 1, [*to_extents(target), _width(node, scope)])


def _flatten(node: RawNode, scope: ImportScope) -> None:
    *shape, width = scope.shape(node.inputs[0])
    axis = node.attrs.pop("axis", 1)
    axis = axis if axis == len(shape) else normal_axis(axis, len(shape))
    node.op = "Reshape"
    _set_ints(node, scope, 1, [product(shape[:axis]), product(shape[axis:]), width])


def _transpose(node: RawNode, scope: ImportScope) -> None:
    rank = _rank(node, scope)
    node.attrs["perm"] = (*node.attrs.get("perm", reversed(range(rank))), rank)


def _tile(node: RawNode, scope: ImportScope) -> None:
    repeats = constant(scope, node.inputs[1], "repeats")
    _set_ints(node, scope, 1, [*repeats.reshape(-1).tolist(), 1])


def _gather_elements(node: RawNode, scope: ImportScope) -> None:
    _along(node, scope)
    shape = (*scope.shape(node.inputs[1]), _width(node, scope))
    rows = scope.add("Unsqueeze", node.inputs[1], [-1])
    node.inputs[1] = scope.add("Expand", rows, shape)


def _list(node: RawNode, scope: ImportScope) -> None:
    """Rewrite Compress and Unique: without the attribute `axis`, the operand is reshaped to a
    vector of strings, along which the operator then acts."""
    _along(node, scope)
    if "axis" not in node.attrs:
        whole = [product(scope.shape(node.inputs[0])[:-1]), _width(node, scope)]
        node.inputs[0] = scope.add("Reshape", node.inputs[0], whole)
        node.attrs["axis"] = 0


def _where(node: RawNode, scope: ImportScope) -> None:
    node.inputs[0] = scope.add("Unsqueeze", node.inputs[0], [-1])
    node.inputs[1:] = of_one_width(scope, node.inputs[1:])


def _concat(node: RawNode, scope: ImportScope) -> None:
    _along(node, scope)
    node.inputs = of_one_width(scope, node.inputs)


def _string_concat(node: RawNode, scope: ImportScope) -> None:
    pass


def _string_split(node: RawNode, scope: ImportScope) -> None:
    """Rewrite StringSplit: the pieces are counted first, because the highest count is an extent of
    the result."""
    node.attrs["delimiter"] = tuple(map(ord, node.attrs.get("delimiter", "")))
    node.attrs["maxsplit"] = node.attrs.get("maxsplit", -1)
    (x,), counted = node.inputs, node.outputs[1:]
    counts = scope.add("CountPieces", x, **node.attrs)
    for name in filter(None, counted):
        scope.bind(name, scope.entry(counts))
    most: Extent = 0
    if 0 not in scope.shape(counts):
        flat = scope.add("Reshape", counts, [-1])
        widest = scope.add("ReduceMax", flat, [0], keepdims=0)
        most = Numbers(scope).size(scope.add("Max", widest, 0))
    node.inputs, node.outputs = [x, scope.constant(ints([most]))], node.outputs[:1]


_RULES: dict[str, Rule] = {
    "Compress": _list,
    "Concat": _concat,
    "Expand": _with_width,
    "Flatten": _flatten,
    "Gather": _along,
    "GatherElements": _gather_elements,
    "GatherND": _along,
    "Reshape": _with_width,
    "Slice": _slice,
    "Split": _along,
    "Squeeze": _squeeze,
    "StringConcat": _string_concat,
    "StringSplit": _string_split,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unique": _list,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
