"""The pass `assign-layouts`, which chooses the memory layout of every tensor."""

from __future__ import annotations

import dataclasses

from farrier.ir.graph import Graph, Node, Value
from farrier.ir.types import DType, Layout, Shape, TensorType
from farrier.ops import Trait, lookup, product_of
from farrier.ops.layout import ELEMENTS, IMAGE_RANKS, Form, Images, is_image
from farrier.ops.operator import to_extents
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes.channel_blocks import channel_block
from farrier.targets.cpu.passes.layouts import form_of, halo_read
from farrier.targets.cpu.target import as_cpu


def assign_layouts(graph: Graph, settings: Settings) -> Graph:
    """Store the images of convolutional networks in blocks of channels (NCHWc). A block has
    `channel_block` channels, usually the lanes of a vector. The image is surrounded by the zeros (a
    halo) that convolutions read as padding. Inputs and outputs of the model stay row-major;
    Relayout nodes convert.

    before:
        @graph
        def g(x: f32[1, 3, 8, 8], v: f32[16, 3, 3, 3], w: f32[16, 16, 3, 3]):
            s: f32[1, 16, 6, 6] = Conv(x, v)
            r: f32[1, 16, 6, 6] = Relu(s)
            y: f32[1, 16, 6, 6] = Conv(r, w, pads=(1, 1, 1, 1))
            return y

    after:
        @graph
        def g(x: f32[1, 3, 8, 8], v: f32[16, 3, 3, 3], w: f32[16, 16, 3, 3]):
            s: f32[1, 16, 6, 6] @ layout(0, 1 / 16, 2, 3, 1 % 16) = Conv(x, v)
            r: f32[1, 16, 6, 6] @ layout(0, 1 / 16, 2, 3, 1 % 16, halo=((0, 0), (0, 0), (1, 1), (1, 1))) = Relu(s)
            y_blocked: f32[1, 16, 6, 6] @ layout(0, 1 / 16, 2, 3, 1 % 16) = Conv(r, w, pads=(1, 1, 1, 1))
            y: f32[1, 16, 6, 6] = Relayout(y_blocked)
            return y
    """  # noqa: E501
    return _Assignment(graph, channel_block(graph, as_cpu(settings.target))).run()


class _Assignment:
    def __init__(self, graph: Graph, block: int) -> None:
        self._graph = graph
        self._block = block
        self._images = Images(self._is_blocked, self._extents, block)
        self._returned = frozenset(value.name for value in graph.outputs)
        self._rewriter = Rewriter(graph)
        self._forms: dict[int, Form] = {}  # By position of the node.
        self._blocked: set[str] = set()  # Values that their producer writes in blocks.
        self._halos: dict[str, int] = {}  # The halo that readers of the blocked form need.
        # The halo that readers of a plain form need, for bf16 images.
        self._rims: dict[str, int] = {}
        self._written_as: dict[str, Value] = {}  # Each value in its producer's layout.
        self._copies: dict[tuple[str, bool], Value] = {}  # By name, and whether in blocks.

    def run(self) -> Graph:
        for position, node in enumerate(self._graph.nodes):
            self._decide(position, node)
        if not self._blocked:
            return self._graph
        self._share_halos()
        self._keep_rims()
        for position, node in enumerate(self._graph.nodes):
            self._place(node, self._forms[position])
        for value in self._graph.outputs:
            if value.name in self._blocked:
                self._copy(value, False)
        return self._rewriter.finish()

    # Deciding -------------------------------------------------------------------------------------

    def _decide(self, position: int, node: Node) -> None:
        form = form_of(node, self._images)
        self._forms[position] = form
        if form in (Form.BLOCKED, Form.BLOCKED_OUTPUT):
            self._blocked |= {value.name for value in node.outputs if is_image(value)}
        x = node.inputs[0] if node.inputs else None
        if form is Form.BLOCKED and x is not None:
            self._halos[x.name] = max(self._halos.get(x.name, 0), halo_read(node))

        if form is Form.BLOCKED_OUTPUT and x is not None and x.type.dtype is DType.BF16:
            self._rims[x.name] = max(self._rims.get(x.name, 0), halo_read(node))

    def _keep_rims(self) -> None:
        """Drop the halos (borders of zeros) of images in plain layout that cannot have one or do
        not need it. A halo is kept only if a node of the graph computes the image, and all its
        readers are convolutions that write a blocked image."""
        computed = {value.name for node in self._graph.nodes for value in node.outputs}
        others = self._returned | {
            value.name
            for position, node in enumerate(self._graph.nodes)
            for value in node.inputs
            if value is not None and self._forms[position] is not Form.BLOCKED_OUTPUT
        }
        self._rims = {n: rim for n, rim in self._rims.items() if rim and n in computed - others}

    def _share_halos(self) -> None:
        """Make the halos (borders of zeros) of a concatenation's operands and result equal, so that
        the operands can be written into the result directly."""
        joins = [
            [value.name for value in (*node.inputs, *node.outputs) if value is not None]
            for position, node in enumerate(self._graph.nodes)
            if lookup(node.op).has(Trait.JOINS) and self._forms[position] is Form.BLOCKED
        ]
        settled = False
        while not settled:
            settled = True
            for names in joins:
                widest = max(self._halos.get(name, 0) for name in names)
                for name in names:
                    if self._halos.get(name, 0) != widest:
                        self._halos[name] = widest
                        settled = False

    def _is_blocked(self, value: Value) -> bool:
        return value.name in self._blocked

    def _extents(self, value: Value | None) -> Shape | None:
        data = self._rewriter.data(value)
        return to_extents(data) if data is not None else None

    def _layout(self, value: Value) -> Layout:
        halo = _halo(value.type.rank, self._halos.get(value.name, 0))
        return Layout.blocked(value.type.rank, 1, self._block, halo)

    # Rewriting ------------------------------------------------------------------------------------

    def _place(self, node: Node, form: Form) -> None:
        inputs = tuple(self._operand(node, i, form) for i in range(len(node.inputs)))
        outputs = tuple(self._written(value) for value in node.outputs)
        self._rewriter.emit(dataclasses.replace(node, inputs=inputs, outputs=outputs))

    def _written(self, value: Value) -> Value:
        """Return `value` with the layout in which its producer writes it. If it is an output of the
        model and is written in blocks, it gets another name; its plain copy has the name of the
        output."""
        written = value
        if value.name in self._blocked:
            returned = value.name in self._returned
            name = self._rewriter.fresh(f"{value.name}_blocked") if returned else value.name
            written = Value(name, _with_layout(value.type, self._layout(value)))
        elif value.name in self._rims:
            plain = Layout.plain(value.type.rank)
            halo = _halo(value.type.rank, self._rims[value.name])
            written = Value(value.name, _with_layout(value.type, Layout(plain.dims, halo)))
        self._written_as[value.name] = written
        return written

    def _operand(self, node: Node, position: int, form: Form) -> Value | None:
        """Return input `position` of a node in the layout in which the node reads it, after a
        Relayout if necessary."""
        value = node.inputs[position]
        if value is None:
            return None
        if self._rewriter.constant_of(value) is not None:
            return self._constant(node, value, position, form)
        written = self._written_as.get(value.name, value)
        is_blocked = value.name in self._blocked
        if form is Form.BLOCKED_OUTPUT:
            return written
        if form is Form.PLAIN:
            return self._copy(value, False) if is_blocked else written
        if _is_convolution(node) and position > 0:
            return self._copy(value, False) if is_blocked else written
        # Only operands with the output's points are worth blocking: gates, masks and scalars
        # broadcast.
        wants = is_image(value) and _covers(value, node)
        return self._copy(value, True) if wants and not is_blocked else written

    def _copy(self, value: Value, blocked: bool) -> Value:
        """Return `value` in blocked layout if `blocked` is true, else in plain layout. All readers
        of the copy share one Relayout."""
        key = (value.name, blocked)
        if key not in self._copies:
            layout = self._layout(value) if blocked else None
            if value.name in self._returned and not blocked:
                name = value.name
            else:
                name = self._rewriter.fresh(f"{value.name}_{'blocked' if blocked else 'plain'}")
            self._copies[key] = Value(name, _with_layout(value.type, layout))
            source = self._written_as.get(value.name, value)
            self._rewriter.emit(Node("Relayout", (source,), (self._copies[key],)))
        return self._copies[key]

    def _constant(self, node: Node, value: Value, position: int, form: Form) -> Value:
        """Return the constant `value` in blocked layout if the node computes a blocked image and
        the constant has an axis with the channels of that image; otherwise return it unchanged. A
        partial last block is padded, so that a vector can read the whole block."""
        y = node.outputs[0]
        if form in (Form.PLAIN, Form.BLOCKED_INPUT) or not is_image(y):
            return value
        shape, channels = value.type.shape, y.type.shape[1]
        is_bias = _is_convolution(node) and position == 2
        if _is_convolution(node) and not is_bias:
            return value  # Weights are packed by the kernel's schedule.
        axis = 0 if is_bias else len(shape) - y.type.rank + 1
        if axis < 0 or shape[axis] != channels or value.type.dtype not in ELEMENTS:
            return value
        if channels % self._block == 0 and all(extent == 1 for extent in shape[axis + 1 :]):
            return value  # Its layout is the same in blocks.
        key = (value.name, True)
        if key not in self._copies:
            layout = Layout.blocked(len(shape), axis, self._block)
            constant = self._rewriter.constant_of(value)
            assert constant is not None
            name = self._rewriter.fresh(f"{value.name}_blocked")
            self._copies[key] = Value(name, _with_layout(value.type, layout))
            self._rewriter.define(self._copies[key], constant.content)
        return self._copies[key]


def _halo(rank: int, around: int) -> tuple[tuple[int, int], ...]:
    """Return the halo of an image with `rank` axes: `around` zeros on both sides of each spatial
    axis."""
    return ((0, 0), (0, 0), *((around, around),) * (rank - 2)) if around else ()


def _covers(value: Value, node: Node) -> bool:
    """Check whether `value` has the same channels and points as the result of a node. The node then
    reads it at the same index at which it writes, instead of broadcasting it."""
    if _is_convolution(node) or lookup(node.op).has(Trait.JOINS):
        return True
    x, y = node.inputs[0], node.outputs[0]
    reference = y if y.type.rank in IMAGE_RANKS and len(node.inputs) > 1 else x
    return reference is not None and value.type.shape[1:] == reference.type.shape[1:]


def _is_convolution(node: Node) -> bool:
    product = product_of(node)
    return product is not None and product.is_convolution


def _with_layout(type: TensorType, layout: Layout | None) -> TensorType:
    return dataclasses.replace(type, layout=layout)
