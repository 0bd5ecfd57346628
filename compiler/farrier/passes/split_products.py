"""Compute queries, keys and values by separate products if a model computes them by a single
product.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from farrier.ir.dim import number, product
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import TensorType
from farrier.ops import Kind, Product, Trait, lookup, product_of
from farrier.ops.broadcast import ADD
from farrier.ops.gather import GATHER
from farrier.ops.operator import to_extents
from farrier.ops.shape import TRANSPOSE
from farrier.ops.slicing import SLICE, Taken, slices
from farrier.passes.rewriting import Rewriter, derived, join_origins
from farrier.passes.rules.shapes import permutation, reshape

# The fewest columns that are worth a product of their own: half a vector of the widest kind.
_NARROWEST = 8


def split_products(graph: Graph) -> Graph:
    """Split a product with constant weights into several products, if each reader of its result
    uses a separate range of columns. Each reader gets a product of its own, so that no reader needs
    to slice or transpose the whole result.

    before:
        @graph
        def g(x: f32[3, 1]):
            w: f32[1, 16] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
            shape: i64[3] = constant([3, 2, 8])
            first: i64[()] = constant(0)
            second: i64[()] = constant(1)
            m: f32[3, 16] = MatMul(x, w)
            r: f32[3, 2, 8] = Reshape(m, shape)
            t: f32[2, 3, 8] = Transpose(r, perm=(1, 0, 2))
            q: f32[3, 8] = Gather(t, first)
            k: f32[3, 8] = Gather(t, second)
            return q, k

    after:
        @graph
        def g(x: f32[3, 1]):
            w: f32[1, 16] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
            shape: i64[3] = constant([3, 2, 8])
            first: i64[()] = constant(0)
            second: i64[()] = constant(1)
            w_1: f32[1, 8] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
            q_part_1_shape: i64[3] = constant([3, 1, 8])
            q_shape: i64[2] = constant([3, 8])
            w_2: f32[1, 8] = constant([8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
            k_part_1_shape: i64[3] = constant([3, 1, 8])
            k_shape: i64[2] = constant([3, 8])
            q_part: f32[3, 8] = MatMul(x, w_1)
            q_part_1: f32[3, 1, 8] = Reshape(q_part, q_part_1_shape)
            q_part_2: f32[1, 3, 8] = Transpose(q_part_1, perm=(1, 0, 2))
            q: f32[3, 8] = Reshape(q_part_2, q_shape)
            k_part: f32[3, 8] = MatMul(x, w_2)
            k_part_1: f32[3, 1, 8] = Reshape(k_part, k_part_1_shape)
            k_part_2: f32[1, 3, 8] = Transpose(k_part_1, perm=(1, 0, 2))
            k: f32[3, 8] = Reshape(k_part_2, k_shape)
            return q, k
    """  # noqa: E501
    search = _Search(graph)
    rewriter = Rewriter(graph)
    wholes = {id(node): whole for node in graph.nodes if (whole := search.whole(node)) is not None}
    replaced = {id(node) for whole in wholes.values() for node in whole.replaced}
    for node in graph.nodes:
        if id(node) in wholes:
            for used in wholes[id(node)].parts:
                for part in _part(wholes[id(node)], used, rewriter):
                    rewriter.emit(part)
        elif id(node) not in replaced:
            rewriter.emit(node)
    return rewriter.finish()


@dataclasses.dataclass(frozen=True, slots=True)
class _ColumnRange:
    """The range of a product's columns that one reader uses: `columns` columns, starting at column
    `start`. Along the axis that the reader slices, they are `extent` points."""

    reader: Node
    output: Value
    extent: int
    start: int
    columns: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """A node between the product and its readers, and the axis of its output along which the
    readers slice their ranges."""

    node: Node
    axis: int
    cut: bool  # Set if the axis counts groups of columns instead of columns.


@dataclasses.dataclass(frozen=True, slots=True)
class _Whole:
    product: Node
    steps: tuple[_Step, ...]
    parts: tuple[_ColumnRange, ...]

    @property
    def replaced(self) -> list[Node]:
        steps = [step.node for step in self.steps]
        return [self.product, *steps, *(part.reader for part in self.parts)]


class _Search:
    """A search that follows the columns of a product to the nodes that slice ranges of them."""

    def __init__(self, graph: Graph) -> None:
        self._data = graph.constant_data()
        self._kinds = {constant.value.name: constant.value.type for constant in graph.constants}
        self._readers = graph.consumers()
        self._returned = frozenset(value.name for value in graph.outputs)

    def whole(self, product: Node) -> _Whole | None:
        """Return the product with all nodes that are replaced along with it, or None if the product
        is not split."""
        if not _has_constant_columns(product, self._kinds):
            return None
        value = product.outputs[0]
        columns = number(value.type.shape[-1])
        axis, cut = value.type.rank - 1, False
        steps: list[_Step] = []
        while value.name not in self._returned:
            readers = self._readers.get(value.name, [])
            unit = columns // number(value.type.shape[axis])
            parts = [part for r in readers for part in self._ranges_of(r, value, axis, unit)]
            if parts:
                good = len({id(p.reader) for p in parts}) == len(readers) and _are_apart(parts)
                return _Whole(product, tuple(steps), tuple(parts)) if good else None
            if len(readers) != 1:
                return None
            moved = self._through(readers[0], value, axis, cut)
            if moved is None:
                return None
            axis, cut = moved
            steps.append(_Step(readers[0], axis, cut))
            value = readers[0].outputs[0]
        return None

    def _through(self, node: Node, value: Value, axis: int, cut: bool) -> tuple[int, bool] | None:
        """Follow the columns of the product through `node`. Return the axis of its output along
        which they run, and True if an index of this axis counts groups of columns instead of
        columns. Return None if the node mixes columns."""
        if len(node.outputs) != 1:
            return None
        source, shape = value.type.shape, node.outputs[0].type.shape
        if ADD.matches(node):
            bias = next((self._data.get(v.name) for v in node.inputs if v and v != value), None)
            along = axis == len(shape) - 1 and not cut and source == shape
            fits = bias is not None and bias.shape[-1:] == (shape[-1],) and bias.size == shape[-1]
            return (axis, cut) if along and fits else None
        if TRANSPOSE.matches(node):
            return permutation(node).index(axis), cut
        if lookup(node.op).kind is not Kind.VIEW or node.inputs[0] != value:
            return None
        if value.type.dtype is not node.outputs[0].type.dtype:
            return None
        before, extent = product(source[:axis]), source[axis]
        for at, size in enumerate(shape):
            if size != 1 and product(shape[:at]) == before:
                if size == extent:
                    return at, cut
                divides = isinstance(size, int) and extent % size == 0
                return (at, True) if not cut and divides else None
        return None

    def _ranges_of(self, node: Node, value: Value, axis: int, unit: int) -> list[_ColumnRange]:
        """Return the ranges that a node slices along `axis`, whose points are groups of `unit`
        columns."""
        if node.inputs[0] != value:
            return []
        rank, extent = value.type.rank, number(value.type.shape[axis])
        if lookup(node.op).has(Trait.PARTS) and node.attr("axis", 0) % rank == axis:
            parts, first = [], 0
            for output in node.outputs:
                size = number(output.type.shape[axis])
                parts.append(_ColumnRange(node, output, size, first * unit, size * unit))
                first += size
            return parts
        if GATHER.matches(node) and node.attr("axis", 0) % rank == axis and node.inputs[1]:
            index = self._data.get(node.inputs[1].name)
            if index is not None and index.size == 1:
                at = int(index.reshape(-1)[0]) % extent
                return [_ColumnRange(node, node.outputs[0], 1, at * unit, unit)]
        if SLICE.matches(node):
            used = self._sliced(node, value, axis)
            if used is not None:
                start, count = used
                return [_ColumnRange(node, node.outputs[0], count, start * unit, count * unit)]
        return []

    def _sliced(self, node: Node, value: Value, axis: int) -> tuple[int, int] | None:
        """Return the index of the first element and the number of elements that a Slice selects
        along `axis`. Return None if the elements are not consecutive, or if the node also slices
        another axis."""
        bounds = [self._data.get(operand.name) if operand else None for operand in node.inputs[1:]]
        starts, ends, axes, steps = (
            None if data is None else to_extents(data) for data in (*bounds, None, None)[:4]
        )
        if starts is None or ends is None or axes is None:
            return None
        numbers = tuple(map(number, axes))
        shape = value.type.shape
        parts = slices(
            shape, starts, ends, numbers, None if steps is None else tuple(map(number, steps))
        )
        used = parts.pop(axis)
        rest = [Taken(0, 1, extent) for at, extent in enumerate(shape) if at != axis]
        if parts != rest or used.step != 1:
            return None
        match used.start, used.count:
            case int(start), int(count) if count:
                return start, count
        return None


def _has_constant_columns(node: Node, constants: Mapping[str, TensorType]) -> bool:
    """Check whether a node is a product in which each column of the result depends on one column of
    constant weights; `constants` maps names to the types of constants."""
    if product_of(node) is not Product.MATRIX or node.attr("transA", 0):
        return False
    weights = constants.get(node.inputs[1].name) if node.inputs[1] else None
    if weights is None or weights.rank != 2 or node.outputs[0].type.rank < 2:
        return False
    addend = node.inputs[2] if len(node.inputs) > 2 else None
    if addend is None:
        return True
    bias = constants.get(addend.name)
    return bias is not None and bias.shape[-1:] == node.outputs[0].type.shape[-1:]


def _are_apart(parts: list[_ColumnRange]) -> bool:
    """Check that there are at least two ranges, that they do not overlap, and that each is wide
    enough for a product of its own."""
    ordered = sorted(parts, key=lambda part: part.start)
    apart = all(a.start + a.columns <= b.start for a, b in itertools.pairwise(ordered))
    return apart and len(parts) > 1 and min(part.columns for part in parts) >= _NARROWEST


def _part(whole: _Whole, used: _ColumnRange, rewriter: Rewriter) -> list[Node]:
    """Return the nodes that compute the columns in `used` for one reader, by a separate product."""
    product, columns = whole.product, slice(used.start, used.start + used.columns)
    origin = join_origins(whole.replaced)
    name = used.output.name

    def narrowed(constant: Value | None, axis: int) -> Value | None:
        operand = rewriter.constant_of(constant)
        if constant is None or operand is None:
            return constant
        shape = operand.value.type.static_shape
        at = axis % len(shape)
        index = (*(slice(None),) * at, columns)
        kind = TensorType(constant.type.dtype, (*shape[:at], used.columns, *shape[at + 1 :]))
        key = f"columns {columns.start} to {columns.stop} of axis {at}"
        content = derived(kind, (operand,), lambda data: data[index].view(), key)
        return rewriter.constant(content, constant.name)

    def result(value: Value, axis: int, extent: int) -> Value:
        shape = value.type.shape
        shape = (*shape[:axis], extent, *shape[axis + 1 :])
        return Value(rewriter.fresh(f"{name}_part"), TensorType(value.type.dtype, shape))

    x, weights, *addend = product.inputs
    inputs = [x, narrowed(weights, 0 if product.attr("transB", 0) else 1)]
    inputs += [narrowed(value, -1) for value in addend]
    whole_value = product.outputs[0]
    last = result(whole_value, whole_value.type.rank - 1, used.columns)
    nodes = [dataclasses.replace(product, inputs=tuple(inputs), outputs=(last,), origin=origin)]
    for step in whole.steps:
        node = step.node
        out = result(node.outputs[0], step.axis, used.extent if step.cut else used.columns)
        if ADD.matches(node):
            (bias,) = (v for v in node.inputs if rewriter.data(v) is not None)
            addends = (last, narrowed(bias, -1))
            nodes.append(dataclasses.replace(node, inputs=addends, outputs=(out,)))
        elif TRANSPOSE.matches(node):
            nodes.append(dataclasses.replace(node, inputs=(last,), outputs=(out,)))
        else:
            nodes.append(reshape(last, out, rewriter, node.origin))
        last = out
    nodes.append(reshape(last, used.output, rewriter, used.reader.origin))
    return nodes
