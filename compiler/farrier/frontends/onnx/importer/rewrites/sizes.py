"""Operators whose extents are values: what a model computes, at run time, as the size of a tensor.

Such values become dims (`ImportScope.sizes`), and the operator's form with dims does the rest;
where a value may be negative or is no size, the node is others that compute with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder.node import RawNode
from farrier.frontends.builder.symbolic import has_dims, ints
from farrier.frontends.onnx.importer.rewrites.numbers import Numbers
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, product
from farrier.ops.operator import Mismatch


def range_(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """As many elements as steps lie before the limit, and of each its place times the step."""
    if all(scope.data(name) is not None for name in node.inputs):
        return [node]
    start, limit, step = (_scalar(name, scope) for name in node.inputs)
    dtype = scope.dtype(start)
    count = scope.add("Max", _steps(start, limit, step, scope), scope.constant(ints(0)))
    # A step of zero has no count.
    is_none = scope.add("Equal", step, scope.constant(np.zeros((), dtype.numpy)))
    count = scope.add("Where", is_none, scope.constant(ints(-1)), count)
    at = scope.add("Cast", places(scope.sizes(count).item(), scope), to=str(dtype))
    offsets = scope.add("Mul", at, step)
    return [RawNode("Add", [start, offsets], node.outputs, {}, node.origin)]


def _steps(start: str, limit: str, step: str, scope: ImportScope) -> str:
    """How many steps there are from start to limit, rounded up, i64; zero or less where there are
    none."""
    kind = scope.dtype(start)
    wide = "f64" if kind.is_float else "i64"
    start, limit, step = (scope.add("Cast", name, to=wide) for name in (start, limit, step))
    span = scope.add("Sub", limit, start)
    if kind.is_float:
        return scope.add("Cast", scope.add("Ceil", scope.add("Div", span, step)), to="i64")
    # -(-span // step), and the quotient of what divides towards zero is one too high where a
    # remainder is left of operands of one sign.
    whole = scope.add("Div", span, step)
    rest = scope.add("Sub", span, scope.add("Mul", whole, step))
    inexact = scope.add("Cast", scope.add("Mul", rest, step), to="i64")
    more = scope.add("Cast", scope.add("Greater", inexact, scope.constant(ints(0))), to="i64")
    return scope.add("Add", whole, more)


def _scalar(name: str, scope: ImportScope) -> str:
    """The operand without axes."""
    if scope.shape(name) == ():
        return name
    return scope.add("Reshape", name, scope.constant(ints([])))


def expand(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """An axis of one element gets the size that is asked for; another keeps its own."""
    x, wanted = node.inputs
    if scope.data(wanted) is not None:
        return [node]
    shape, (count,) = scope.shape(x), scope.shape(wanted)
    if not isinstance(count, int):
        raise Mismatch(f"the shape to expand to has {count} elements")
    own = (1,) * (count - len(shape)) + shape
    sizes = scope.sizes(wanted).tolist() if any(n == 1 for n in own[-count:]) else own
    target = [size if n == 1 else n for n, size in zip(own[-count:], sizes, strict=False)]
    return [RawNode("Expand", [x, scope.constant(ints(target))], node.outputs, {}, node.origin)]


def sized(
    node: RawNode, scope: ImportScope, position: int, bounds: Sequence[Extent | None] = ()
) -> None:
    """Make an operand of sizes dims, where it is known only at run time."""
    name = node.input(position)
    if name and scope.data(name) is None:
        node.inputs[position] = scope.constant(scope.sizes(name, bounds))


def tile(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    sized(node, scope, 1)
    return [node]


def one_hot(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    sized(node, scope, 1)
    return [node]


def trilu(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Which elements stay is computed from their places, where the diagonal is not known."""
    x, shape, k = node.inputs[0], scope.shape(node.inputs[0]), node.input(1)
    data = scope.data(k) if k else None
    if not k or (data is not None and not has_dims(data)) or len(shape) < 2:
        return [node]
    rows = scope.add("Unsqueeze", places(shape[-2], scope), scope.constant(ints([1])))
    diagonal, column = scope.add("Add", rows, k), places(shape[-1], scope)
    sides = (diagonal, column) if node.attrs.get("upper", 1) else (column, diagonal)
    kept = scope.add("LessOrEqual", *sides)
    zero = scope.constant(np.zeros((), scope.dtype(x).numpy))
    return [RawNode("Where", [kept, x, zero], node.outputs, {}, node.origin)]


def max_unpool(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Batch and channels of the output shape must be the input's."""
    shape, given = scope.shape(node.inputs[0]), node.input(2)
    if given and scope.data(given) is None:
        numbers, wanted = Numbers(scope), scope.elements(given)
        for extent, own in zip(wanted[:2], shape[:2], strict=False):
            numbers.require(extent, own)
        spatial = (numbers.size(extent) for extent in wanted[2:])
        node.inputs[2] = scope.constant(ints([*shape[:2], *spatial]))
    return [node]


def non_zero(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The places of all elements, whose count is a size and no data, where none of them is zero.
    Exporters write so the places that they assign to ("x[:, 1:] = y")."""
    x = node.inputs[0]
    shape, dtype = scope.shape(x), scope.dtype(x)
    if dtype.is_float or not shape or scope.data(x) is not None or not scope.filled(x):
        return [node]
    whole, row = scope.constant(ints(shape)), scope.constant(ints([1, product(shape)]))
    rows = []
    for axis, size in enumerate(shape):
        along = scope.constant(ints([size, *[1] * (len(shape) - axis - 1)]))
        grid = scope.add("Expand", scope.add("Reshape", places(size, scope), along), whole)
        rows.append(scope.add("Reshape", grid, row))
    return [RawNode("Concat", rows, node.outputs, {"axis": 0}, node.origin)]


def places(count: Extent, scope: ImportScope) -> str:
    """0, 1, 2, … below `count`, i64."""
    return scope.add("Range", *(scope.constant(ints(value)) for value in (0, count, 1)))
