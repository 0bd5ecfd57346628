"""The pass `merge-products`, which computes several products with the same left factor by one
kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.ir.dim import number
from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import TensorType
from farrier.ops import Kind, lookup
from farrier.ops.broadcast import ADD
from farrier.ops.matmul import MATMUL
from farrier.passes.rewriting import Rewriter, derived, join_origins

if TYPE_CHECKING:
    import numpy.typing as npt

# By WebGPU's default limits (minStorageBufferOffsetAlignment): a kernel reads a part of an array
# where it lies if the part begins at a multiple of 256 bytes.
_ALIGNMENT = 256


def merge_products(graph: Graph) -> Graph:
    """Merge several products into one batched product, if they have the same first factor and
    constant weights of equal shape. An example is the products for the queries, keys and values of
    an attention. The original results become Part nodes of the batched result, which need no code.

    One launch with the blocks of several products occupies a GPU better, and starting a launch
    takes as long as a small product. A product that is followed by elementwise nodes other than a
    bias is not merged: after the Part, these nodes would need a kernel of their own.

    before:
        @graph
        def g(x: f32[8, 1]):
            v: f32[1, 8] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
            w: f32[1, 8] = constant([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
            q: f32[8, 8] = MatMul(x, v)
            k: f32[8, 8] = MatMul(x, w)
            y: f32[8, 8] = MatMul(q, k)
            return y

    after:
        @graph
        def g(x: f32[8, 1]):
            v: f32[1, 8] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
            w: f32[1, 8] = constant([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
            v_stack: f32[2, 1, 8] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
            q_stack: f32[2, 8, 8] = MatMul(x, v_stack)
            q: f32[8, 8] = Part(q_stack, index=0)
            k: f32[8, 8] = Part(q_stack, index=1)
            y: f32[8, 8] = MatMul(q, k)
            return y
    """  # noqa: E501
    groups = _Search(graph).groups()
    first = {id(group[0].product): group for group in groups}
    replaced = {id(node) for group in groups for member in group for node in member.nodes}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if id(node) in first:
            _merge(first[id(node)], rewriter)
        elif id(node) not in replaced:
            rewriter.emit(node)
    return rewriter.finish()


@dataclasses.dataclass(frozen=True, slots=True)
class _Member:
    """A product with constant weights that can be merged, and the addition of a constant bias after
    it, if any."""

    product: Node
    weights: Constant
    addition: Node | None
    bias: Constant | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.product,) if self.addition is None else (self.product, self.addition)

    @property
    def result(self) -> Value:
        return self.nodes[-1].outputs[0]


class _Search:
    """The search for products of a graph that can be merged."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes
        self._constants = {constant.value.name: constant for constant in graph.constants}
        self._readers = graph.consumers()
        self._returned = frozenset(value.name for value in graph.outputs)

    def groups(self) -> list[list[_Member]]:
        """Return the groups of products to merge, in the order of the graph."""
        groups: dict[tuple[Value, TensorType], list[_Member]] = {}
        for node in self._nodes:
            member = self._member(node)
            if member is not None and (x := node.inputs[0]) is not None:
                groups.setdefault((x, member.weights.value.type), []).append(member)
        return [group for group in groups.values() if len(group) > 1]

    def _member(self, node: Node) -> _Member | None:
        """Return a product as a member of a group; None if it cannot be merged."""
        if not MATMUL.matches(node) or node.attrs:
            return None
        x, weights = (self._constant(value) for value in node.inputs)
        if x is not None or weights is None or weights.value.type.rank != 2:
            return None
        member = self._with_bias(node, weights)
        value = member.result
        plain = all(v is None or v.type.layout is None for v in (*node.inputs, value))
        return member if plain and self._is_worth_it(value) else None

    def _with_bias(self, node: Node, weights: Constant) -> _Member:
        (value,) = node.outputs
        readers = self._readers.get(value.name, [])
        if value.name not in self._returned and len(readers) == 1 and ADD.matches(readers[0]):
            (addition,) = readers
            others = [self._constant(v) for v in addition.inputs if v != value]
            bias = others[0] if others else None
            if bias is not None and _is_row(bias.value.type, value.type):
                return _Member(node, weights, addition, bias)
        return _Member(node, weights, None, None)

    def _is_worth_it(self, value: Value) -> bool:
        """Check whether a value can be a Part without separating an epilogue from its product."""
        readers = self._readers.get(value.name, [])
        return (
            value.type.nbytes % _ALIGNMENT == 0
            and value.name not in self._returned
            and bool(readers)
            and not any(lookup(reader.op).kind is Kind.ELEMENTWISE for reader in readers)
        )

    def _constant(self, value: Value | None) -> Constant | None:
        return self._constants.get(value.name) if value is not None else None


def _is_row(bias: TensorType, result: TensorType) -> bool:
    """Check whether a constant that is added to a product has one number for each column."""
    columns = result.shape[-1]
    is_row = bias.shape[-1:] == (columns,) and bias.size == columns
    return is_row and bias.rank <= result.rank and bias.dtype is result.dtype


def _merge(group: Sequence[_Member], rewriter: Rewriter) -> None:
    """Emit the batched product of all members, and its Parts."""
    first = group[0]
    x, result = first.product.inputs[0], first.product.outputs[0]
    origin = join_origins([node for member in group for node in member.nodes])
    inner = (1,) * (result.type.rank - 2)
    weights = _stacked([m.weights for m in group], inner, rewriter, first.weights.value.name)
    type = dataclasses.replace(result.type, shape=(len(group), *result.type.shape))
    whole = Value(rewriter.fresh(f"{result.name}_stack"), type)
    rewriter.emit(Node("MatMul", (x, weights), (whole,), origin=origin))
    if any(member.bias for member in group):
        biases = _stacked_rows(group, rewriter)
        total = Value(rewriter.fresh(f"{first.result.name}_stack"), type)
        rewriter.emit(Node("Add", (whole, biases), (total,), origin=origin))
        whole = total
    for index, member in enumerate(group):
        attrs = attributes(index=index)
        rewriter.emit(Node("Part", (whole,), (member.result,), attrs, origin=origin))


def _stacked(
    constants: Sequence[Constant], inner: tuple[int, ...], rewriter: Rewriter, hint: str
) -> Value:
    """Return constants stacked along a new first axis, followed by the axes `inner`, which have
    extent 1, and the axes of the constants."""
    kind = constants[0].value.type
    type = dataclasses.replace(kind, shape=(len(constants), *inner, *kind.shape))

    def stack(*arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.stack(arrays).reshape(type.static_shape)

    key = f"stacked, {len(inner)} axes"
    return rewriter.constant(derived(type, tuple(constants), stack, key), f"{hint}_stack")


def _stacked_rows(group: Sequence[_Member], rewriter: Rewriter) -> Value:
    """Return the biases of a group stacked along a new first axis; zeros for members without a
    bias."""
    result = group[0].product.outputs[0].type
    columns = number(result.shape[-1])
    zeros = np.zeros(columns, result.dtype.numpy)
    rows = [zeros if m.bias is None else m.bias.data.reshape(columns) for m in group]
    shape = (len(group), *(1,) * (result.rank - 1), columns)
    name = next(member.bias.value.name for member in group if member.bias is not None)
    return rewriter.constant(np.stack(rows).reshape(shape), f"{name}_stack")
