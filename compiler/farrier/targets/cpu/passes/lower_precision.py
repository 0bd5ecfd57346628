"""The pass `lower-precision`, which rounds the factors of contractions to bf16 or f16; sums stay
f32."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeAlias

import numpy as np

from farrier.ir.dim import is_less
from farrier.ir.graph import Attribute, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, Moves, Product, lookup, product_of
from farrier.ops.window import window_of
from farrier.options.precision import Precision
from farrier.passes.attention import attention_regions
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.targets.cpu.passes.layouts import halo_read
from farrier.targets.cpu.target import CpuTarget, as_cpu

Inputs: TypeAlias = tuple[Value | None, ...]

# Data movements that also work on the narrow dtype.
_MOVED = (Moves.ONCE, Moves.EXTREME)
_FEWEST_LANES = 8  # The fewest results along the lanes for which a kernel of dot products pays.
# The number of products that one dot product, or the smallest tile, sums.
_STEPS = {DType.BF16: 2, DType.F16: 8}


def lower_precision(graph: Graph, settings: Settings) -> Graph:
    """Round the operands of convolutions and matrix products to bf16 or f16 (to nearest even), with
    f32 sums, if the settings request it. Inputs and outputs of the model stay f32.

    A value is stored in the narrow type if its readers are such products, elementwise operators, or
    operators that move elements. So is a result that is later added to another one. Everything else
    is computed in f32 as before.

    These products stay f32: grouped convolutions whose groups do not fill tiles; sums with an odd
    number of terms, except those over the keys of an attention; and products of a single row with
    constant weights, whose time is that of reading the weights. For f16, only products with
    constant weights and a multiple of eight terms are lowered, as these are the products that tiles
    multiply.

    Images with few channels are stored plane by plane, so that a dot product takes neighbouring
    elements of a row; a kernel of odd width gets an additional column of zeros.

    before:
        @graph
        def g(x: f32[2, 4], v: f32[4, 8], w: f32[8, 8]):
            a: f32[2, 8] = MatMul(x, v)
            r: f32[2, 8] = Relu(a)
            b: f32[2, 8] = MatMul(r, w)
            y: f32[2, 8] = Add(b, r)
            return y

    after:
        @graph
        def g(x: f32[2, 4], v: f32[4, 8], w: f32[8, 8]):
            x_bf16: bf16[2, 4] = Cast(x, to='bf16')
            v_bf16: bf16[4, 8] = Cast(v, to='bf16')
            a: f32[2, 8] = MatMul(x_bf16, v_bf16, accumulator='f32')
            r: f32[2, 8] = Relu(a)
            r_bf16: bf16[2, 8] = Cast(r, to='bf16')
            w_bf16: bf16[8, 8] = Cast(w, to='bf16')
            b: f32[2, 8] = MatMul(r_bf16, w_bf16, accumulator='f32')
            r_f32: f32[2, 8] = Cast(r_bf16, to='f32')
            y: f32[2, 8] = Add(b, r_f32)
            return y
    """
    if settings.precision is Precision.F32:
        return graph
    return _Lowering(graph, settings.precision.dtype, as_cpu(settings.target)).run()


class _Lowering:
    def __init__(self, graph: Graph, dtype: DType, target: CpuTarget) -> None:
        self._graph = graph
        self._dtype = dtype
        self._target = target
        self._step = _STEPS[dtype]
        self._rewriter = Rewriter(graph)
        self._readers = graph.consumers()
        self._producers = graph.producers()
        self._returned = frozenset(value.name for value in graph.outputs)
        self._constants = frozenset(constant.value.name for constant in graph.constants)
        self._contexts = frozenset(map(id, attention_regions(graph).values()))
        self._lowered = {id(node) for node in graph.nodes if self._is_lowered(node)}
        self._homes = self._find_homes()
        self._narrow: set[str] = set()  # Values that are stored narrow.
        self._made_narrow: dict[str, Value] = {}

    def run(self) -> Graph:
        if not self._lowered:
            return self._graph
        for node in reversed(self._graph.nodes):
            self._narrow |= {v.name for v in node.outputs if self._is_narrow(v)}
        for node in self._graph.nodes:
            self._rewrite(node)
        return self._rewriter.finish()

    # Deciding -------------------------------------------------------------------------------------

    def _is_lowered(self, node: Node) -> bool:
        """Check whether a node is a contraction for which instructions on narrow operands are
        used."""
        product = product_of(node)
        if product not in (Product.MATRIX, Product.CONVOLUTION):
            return False
        x, w = node.inputs[:2]
        if x is None or w is None or x.type.dtype is not DType.F32:
            return False
        if product is Product.CONVOLUTION:
            return self._is_lowered_convolution(node, x, w)
        if self._is_row(node):
            return True
        lanes = 1 if w.type.rank < 2 else node.outputs[0].type.shape[-1]
        if x.type.rank < 2 or is_less(lanes, _FEWEST_LANES) or node.attr("transA", 0):
            return False
        if self._dtype is DType.F16 and w.name not in self._constants:
            return False
        return id(node) in self._contexts or x.type.shape[-1] % self._step == 0

    def _is_lowered_convolution(self, node: Node, x: Value, w: Value) -> bool:
        """Check whether a convolution is computed on narrow operands. Its padding must be stored as
        zeros in memory."""
        if x.type.rank != 4 or w.name not in self._constants or not self._takes_groups(node, w):
            return False
        if w.type.static_shape[0] < _FEWEST_LANES:
            return False
        if any(node.attr("pads", (0,))) and not halo_read(node):
            return False
        if self._is_planar(x) and self._dtype is not DType.F16:
            dense = all(step == 1 for step in node.attr("dilations", (1,)))
            return dense and w.type.shape[-1] > 1
        return w.type.static_shape[1] % self._step == 0

    def _takes_groups(self, node: Node, w: Value) -> bool:
        """Check whether a convolution has a single group, or groups whose channels fill blocks that
        a tile unit of the target multiplies."""
        group = int(node.attr("group", 1))
        if group == 1:
            return True
        channels, inputs, *_ = w.type.static_shape
        kinds, outputs = (self._dtype, self._dtype), channels // group
        unit = self._target.unit_of(*kinds)
        blocks = () if unit is None else unit.blocks_of(channels, self._target.lanes)
        return any(outputs % block == inputs % block == 0 for block in blocks)

    def _is_planar(self, x: Value) -> bool:
        """Check whether an image has too few channels for the blocked layout."""
        return is_less(x.type.shape[1], _FEWEST_LANES)

    def _is_row(self, node: Node) -> bool:
        """Check whether a node is the product of one row with constant weights."""
        x, w = node.inputs[:2]
        assert x is not None
        assert w is not None
        is_matrix = product_of(node) is Product.MATRIX and w.type.rank == 2
        if not is_matrix or w.name not in self._constants:
            return False
        return math.prod(x.type.shape[:-1]) == 1 and not node.attr("transA", 0)

    def _is_narrow(self, value: Value) -> bool:
        """Check whether a value is stored in the narrow dtype: at least one reader takes it narrow,
        and all others are elementwise and can convert it."""
        readers = self._readers.get(value.name, [])
        if value.type.dtype is not DType.F32 or value.name in self._returned or not readers:
            return False
        if len(readers) == 1 and self._awaits_later_contraction(value, readers[0]):
            return True
        wanted = [self._wants(reader, value) for reader in readers]
        return any(wanted) and all(
            wants or lookup(reader.op).kind is Kind.ELEMENTWISE
            for reader, wants in zip(readers, wanted, strict=True)
        )

    def _awaits_later_contraction(self, value: Value, reader: Node) -> bool:
        """Check whether `value`, the result of a lowered contraction, is one of two operands of an
        elementwise `reader` (a residual connection) whose other operand is computed by a later
        contraction. It is then stored in memory until that contraction has run."""
        first = self._producers.get(value.name)
        if first is None or id(first) not in self._lowered:
            return False
        if lookup(reader.op).kind is not Kind.ELEMENTWISE:
            return False
        others = [other for other in reader.inputs if other is not None and other != value]
        return any(
            other.type.shape == value.type.shape
            and self._homes.get(other.name, -1) > self._homes[value.name]
            for other in others
        )

    def _find_homes(self) -> dict[str, int]:
        """Return a mapping from the name of each value to the position of the contraction whose
        kernel computes it: a lowered contraction's result, or elementwise functions of the same
        shape of such results. If several contractions contribute, it is the last one."""
        homes: dict[str, int] = {}
        for position, node in enumerate(self._graph.nodes):
            y = node.outputs[0]
            if id(node) in self._lowered:
                homes[y.name] = position
            elif lookup(node.op).kind is Kind.ELEMENTWISE:
                same = (v for v in node.inputs if v is not None and v.type.shape == y.type.shape)
                positions = [homes[v.name] for v in same if v.name in homes]
                if positions:
                    homes[y.name] = max(positions)
        return homes

    def _wants(self, reader: Node, value: Value) -> bool:
        """Check whether a node reads `value` in the narrow dtype at every operand where it
        occurs."""
        return all(
            other != value or position in self._narrow_inputs(reader)
            for position, other in enumerate(reader.inputs)
        )

    def _narrow_inputs(self, node: Node) -> range:
        """Return the positions of the inputs that a node reads in the narrow dtype."""
        if id(node) in self._lowered:
            return range(1, 2) if self._is_row(node) else range(2)
        operator = lookup(node.op)
        moves = operator.moved(node) in _MOVED and len(node.outputs) == 1
        if not moves or node.outputs[0].name not in self._narrow:
            return range(0)
        return range(len(operator.data_operands(node)))

    # Rewriting ------------------------------------------------------------------------------------

    def _rewrite(self, node: Node) -> None:
        narrow, lowered = self._narrow_inputs(node), id(node) in self._lowered
        operands, attrs, outputs = node.inputs, dict(node.attrs), node.outputs
        if lowered and product_of(node) is Product.CONVOLUTION:
            operands, attrs = self._with_even_window(node)
        inputs = tuple(
            None if value is None else self._narrowed(value) if at in narrow else self._f32(value)
            for at, value in enumerate(operands)
        )
        if lowered:
            attrs["accumulator"] = DType.F32.value
        elif narrow:
            (y,) = outputs
            self._made_narrow[y.name] = self._like(y, self._dtype)
            outputs = (self._made_narrow[y.name],)
        lowered_node = Node(
            node.op, inputs, outputs, attributes(**attrs), node.regions, node.origin
        )
        self._rewriter.emit(lowered_node)

    def _with_even_window(self, node: Node) -> tuple[Inputs, dict[str, Attribute]]:
        """Return the inputs and attributes of a convolution. If it reads a planar image with a
        kernel of odd width, the kernel is widened by one column of zeros."""
        x, w, *bias = node.inputs
        assert x is not None
        assert w is not None
        height, width = w.type.static_shape[2:]
        attrs = dict(node.attrs)
        if not self._is_planar(x) or width % self._step == 0:
            return node.inputs, attrs
        data = self._rewriter.data(w)
        assert data is not None
        wider = np.pad(data, ((0, 0), (0, 0), (0, 0), (0, 1)))
        window = window_of(attrs, x.type.shape[2:], (height, width))
        window = dataclasses.replace(
            window, kernel=(height, width + 1), after=(window.after[0], window.after[1] + 1)
        )
        attrs.pop("auto_pad", None)
        weights = self._rewriter.constant(wider, f"{w.name}_wider")
        return (x, weights, *bias), {**window.explicit(attrs)}

    def _narrowed(self, value: Value) -> Value:
        """Return a value in the narrow dtype. All its readers share one conversion."""
        if value.name not in self._made_narrow:
            self._made_narrow[value.name] = self._cast(value, self._dtype)
        return self._made_narrow[value.name]

    def _f32(self, value: Value) -> Value:
        """Return a value in f32. If it is stored narrow, each reader gets its own conversion, which
        fuses with the reader."""
        if value.name not in self._narrow:
            return value
        return self._cast(self._narrowed(value), DType.F32, value.name)

    def _cast(self, value: Value, dtype: DType, hint: str = "") -> Value:
        converted = self._like(value, dtype, hint)
        self._rewriter.emit(Node("Cast", (value,), (converted,), attributes(to=dtype.value)))
        return converted

    def _like(self, value: Value, dtype: DType, hint: str = "") -> Value:
        name = self._rewriter.fresh(f"{hint or value.name}_{dtype.value}")
        return Value(name, TensorType(dtype, value.type.shape))
