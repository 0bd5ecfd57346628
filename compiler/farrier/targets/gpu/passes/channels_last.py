"""The pass `channels-last`, which chooses the layouts of images and weights for products that a
GPU's subgroups compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from farrier.intrinsics.fragments import FactorType
from farrier.ir.dim import product, typical
from farrier.ir.expr import UnaryOp
from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType, Layout, Shape
from farrier.ops import Product, Trait, lookup, product_of
from farrier.ops.layout import IMAGE_RANKS, Form, Images, is_image
from farrier.ops.operator import to_extents
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.passes.views import is_view

_LEAST = 8  # Channels, rows and columns: with fewer, most of a fragment is empty.
_BYTES = (DType.I8, DType.U8)


def channels_last(graph: Graph, settings: Settings) -> Graph:
    """Store the images of convolutions with their channels innermost (`[n, c, h, w] → [n, h, w, c]`
    in memory), and their weights likewise, if subgroups compute the convolution by fragments
    (tensor cores). The terms of a sum are then adjacent in memory. For the same reason, the
    constant factors of products of bytes and of tf32 are transposed. Inputs and outputs of the model stay
    row-major; Relayout nodes convert.

    before:
        @graph
        def g(x: f16[1, 8, 4, 4]):
            w: f16[2, 8, 1, 1] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
            c: f32[1, 2, 4, 4] = Conv(x, w, accumulator='f32')
            y: f32[1, 2, 4, 4] = Relu(c)
            return y

    after:
        @graph
        def g(x: f16[1, 8, 4, 4]):
            w: f16[2, 8, 1, 1] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
            w_placed: f16[2, 8, 1, 1] @ layout(0, 2, 3, 1) = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
            x_last: f16[1, 8, 4, 4] @ layout(0, 2, 3, 1) = Relayout(x)
            c: f32[1, 2, 4, 4] @ layout(0, 2, 3, 1) = Conv(x_last, w_placed, accumulator='f32')
            y_last: f32[1, 2, 4, 4] @ layout(0, 2, 3, 1) = Relu(c)
            y: f32[1, 2, 4, 4] = Relayout(y_last)
            return y
    """  # noqa: E501
    from farrier.targets.gpu.backend import GpuBackend

    backend = settings.target.backend
    if not isinstance(backend, GpuBackend):
        return graph
    kinds = {each.factors for each in backend.products(settings.target)}
    return _Placement(graph, kinds).run() if kinds else graph


class _Placement:
    """The choice of a layout for each value of a graph. `_last` has the names of the values whose
    channels are innermost."""

    def __init__(self, graph: Graph, kinds: Collection[tuple[FactorType, FactorType]]) -> None:
        self._graph, self._kinds = graph, kinds
        self._returned = frozenset(value.name for value in graph.outputs)
        self._rewriter = Rewriter(graph)
        self._images = Images(lambda value: value.name in self._last, self._extents, 1)
        self._last: set[str] = set()
        self._written_as: dict[str, Value] = {}  # Each value in its producer's layout.
        self._copies: dict[tuple[str, Layout | None], Value] = {}

    def run(self) -> Graph:
        for node in self._graph.nodes:
            self._place(node, self._form(node))
        for value in self._graph.outputs:
            if value.name in self._last:
                self._copy(value, False)
        return self._rewriter.finish()

    # -- deciding

    def _form(self, node: Node) -> Form:
        if product_of(node) is Product.CONVOLUTION:
            return self._form_of_convolution(node)
        rule = lookup(node.op).layout
        operands = [value for value in node.inputs if value is not None]
        if rule is None or not any(value.name in self._last for value in operands):
            return Form.PLAIN
        return rule(node, self._images)

    def _form_of_convolution(self, node: Node) -> Form:
        x, w, *_ = node.inputs
        y = node.outputs[0]
        assert x is not None
        assert w is not None
        is_last = x.name in self._last
        if x.type.rank not in IMAGE_RANKS or not is_image(y):
            return Form.BLOCKED_INPUT if is_last else Form.PLAIN
        if is_last:
            return Form.BLOCKED
        factors = _factors_of(node)
        if node.attr("group", 1) != 1 or not {factors, factors[::-1]} & set(self._kinds):
            return Form.PLAIN
        channels = x.type.shape[1]
        is_wide = is_image(x) and isinstance(channels, int) and channels >= _LEAST
        return Form.BLOCKED if is_wide else Form.BLOCKED_OUTPUT

    def _extents(self, value: Value | None) -> Shape | None:
        data = self._rewriter.data(value)
        return to_extents(data) if data is not None else None

    # -- rewriting

    def _place(self, node: Node, form: Form) -> None:
        inputs = tuple(self._operand(node, at, form) for at in range(len(node.inputs)))
        if form in (Form.BLOCKED, Form.BLOCKED_OUTPUT):
            self._last |= {value.name for value in node.outputs if is_image(value)}
        outputs = tuple(map(self._written, node.outputs))
        self._rewriter.emit(dataclasses.replace(node, inputs=inputs, outputs=outputs))

    def _written(self, value: Value) -> Value:
        """Return `value` with the layout in which its producer writes it. If it is an output of the
        model in another layout, it gets another name; its plain copy has the name of the output."""
        written = value
        if value.name in self._last:
            returned = value.name in self._returned
            name = self._rewriter.fresh(f"{value.name}_last") if returned else value.name
            written = _laid_out(name, value, Layout.channels_last(value.type.rank))
        self._written_as[value.name] = written
        return written

    def _operand(self, node: Node, position: int, form: Form) -> Value | None:
        """Return input `position` of a node in the layout in which the node reads it."""
        value = node.inputs[position]
        if value is None:
            return None
        if self._rewriter.constant_of(value) is not None:
            layout = _of_constant(node, position, form)
            return value if layout is None else self._constant(value, layout)
        is_last = value.name in self._last
        written = self._written_as.get(value.name, value)
        if is_last and is_view(dataclasses.replace(node, inputs=(written, *node.inputs[1:]))):
            return written  # A transposition that puts the channels last.
        if form is Form.BLOCKED_OUTPUT:
            return written
        if form is Form.PLAIN or (product_of(node) is Product.CONVOLUTION and position > 0):
            return self._copy(value, False) if is_last else written
        wants = is_image(value) and _covers(value, node)
        return self._copy(value, True) if wants and not is_last else written

    def _copy(self, value: Value, last: bool) -> Value:
        """Return `value` with its channels innermost if `last` is true, else in plain layout. All
        readers of the copy share one conversion."""
        layout = Layout.channels_last(value.type.rank) if last else None
        key = (value.name, layout)
        if key not in self._copies:
            is_output = value.name in self._returned and not last
            hint = f"{value.name}_{'last' if last else 'plain'}"
            name = value.name if is_output else self._rewriter.fresh(hint)
            self._copies[key] = _laid_out(name, value, layout)
            source = self._written_as.get(value.name, value)
            self._rewriter.emit(Node("Relayout", (source,), (self._copies[key],)))
        return self._copies[key]

    def _constant(self, value: Value, layout: Layout) -> Value:
        key = (value.name, layout)
        if key not in self._copies:
            constant = self._rewriter.constant_of(value)
            assert constant is not None
            name = self._rewriter.fresh(f"{value.name}_placed")
            self._copies[key] = _laid_out(name, value, layout)
            self._rewriter.define(self._copies[key], constant.content)
        return self._copies[key]


def _of_constant(node: Node, position: int, form: Form) -> Layout | None:
    """Return the layout for input `position` of a node if it is a constant factor that should be
    stored in another order: with the terms of a sum innermost, or for a depthwise convolution the
    channels. Return None for all other inputs."""
    value = node.inputs[position]
    assert value is not None
    rank = value.type.rank
    if position != 1 or rank < 2:
        return None
    if product_of(node) is Product.MATRIX and not node.attr("transB", 0):
        order = (*range(rank - 2), rank - 1, rank - 2)
        return Layout.ordered_by(order) if _is_for_fragments(node) else None
    if product_of(node) is not Product.CONVOLUTION or form is not Form.BLOCKED:
        return None
    if value.type.shape[1] == 1:
        return Layout.ordered_by((*range(2, rank), 1, 0))
    return Layout.channels_last(rank)


def _factors_of(node: Node) -> tuple[FactorType, FactorType]:
    """Return the dtypes of a product's factors, and their rounding."""
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    rounding = UnaryOp.ROUND_TF32 if node.attr("factors") else None
    return (x.type.dtype, rounding), (w.type.dtype, rounding)


def _is_for_fragments(node: Node) -> bool:
    """Check whether subgroups multiply the elements of a product of matrices, which are not of two
    bytes. Instructions that read fragments transpose elements of two bytes only; products of few
    rows are for other rules."""
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    if not all(dtype in _BYTES or rounding is not None for dtype, rounding in _factors_of(node)):
        return False
    rows, columns = typical(product(x.type.shape[:-1])), typical(w.type.shape[-1])
    return min(rows, columns) >= _LEAST


def _covers(value: Value, node: Node) -> bool:
    """Check whether a node reads `value` at the same index at which it writes its result. If not,
    the value has other extents and is broadcast."""
    if product_of(node) is Product.CONVOLUTION or lookup(node.op).has(Trait.JOINS):
        return True
    x, y = node.inputs[0], node.outputs[0]
    reference = y if y.type.rank in IMAGE_RANKS and len(node.inputs) > 1 else x
    return reference is not None and value.type.shape[1:] == reference.type.shape[1:]


def _laid_out(name: str, value: Value, layout: Layout | None) -> Value:
    return Value(name, dataclasses.replace(value.type, layout=layout))
