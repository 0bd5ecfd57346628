"""Rewrite products and averages of dequantized tensors as products and sums of their integers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.dim import number
from farrier.ir.graph import Attribute, Graph, Node, Value, attributes
from farrier.ir.types import DType, TensorType
from farrier.ops import Kind, Product, lookup, product_of
from farrier.ops.quantize import DEQUANTIZE, QUANTIZE
from farrier.ops.reduce import GLOBAL_AVERAGE
from farrier.ops.window import window_of
from farrier.passes.rewriting import Rewriter

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

_CLOSE = 1e-5  # The relative difference of a bias's scale from the product's: a rounding of f32.
_EXACT_TAPS = 2**24 // (255 * 128)  # The most products of bytes whose sum f32 holds exactly.
_MOST_POINTS = 2**31 // 256  # The most bytes whose sum fits in i32.
_PRODUCTS = (Product.MATRIX, Product.CONVOLUTION)


@dataclasses.dataclass(frozen=True, slots=True)
class _Quantized:
    """A quantized tensor: `real = (integers − zero) · scale`."""

    integers: Value
    scale: Array  # In f32, broadcasts against the tensor.
    zero: Array  # One element, or the shape of `scale`.


class QuantizedProducts:
    """The rewriting of one graph for a target.

    One instruction of the target adds up `group` products; images are stored in blocks of `block`
    channels; and `takes_groups(weights, groups)` decides whether a grouped convolution is
    rewritten.
    """

    def __init__(
        self, graph: Graph, group: int, block: int, takes_groups: Callable[[Array, int], bool]
    ) -> None:
        self._graph = graph
        self._group = group
        self._block = block
        self._takes_groups = takes_groups
        self._rewriter = Rewriter(graph)
        self._of_integers: set[str] = set()  # Floats that were computed from integers.

    def run(self) -> Graph:
        for original in self._graph.nodes:
            node = self._rewriter.resolve_inputs(original)
            for each in self._rewritten(node) or (node,):
                self._rewriter.emit(each)
                self._note(each)
        return self._rewriter.finish()

    def _rewritten(self, node: Node) -> tuple[Node, ...] | None:
        """Return the nodes that replace a node; None if it stays."""
        return (
            self._moved(node)
            or self._product(node)
            or self._average(node)
            or self._requantized(node)
        )

    def _note(self, node: Node) -> None:
        inputs = {value.name for value in node.inputs if value is not None}
        follows = lookup(node.op).kind is Kind.ELEMENTWISE and inputs & self._of_integers
        is_sum = product_of(node) in _PRODUCTS and node.attr("accumulator") is not None
        if DEQUANTIZE.matches(node) or is_sum or follows:
            self._of_integers |= {value.name for value in node.outputs}

    # Reading --------------------------------------------------------------------------------------

    def _quantized(self, value: Value | None) -> _Quantized | None:
        """Return the integers, scale and zero point of a value that is the f32 result of a
        DequantizeLinear; None for any other value."""
        node = self._rewriter.producer(value)
        if value is None or not DEQUANTIZE.matches(node):
            return None
        integers, scale = node.inputs[0], self._rewriter.data(node.inputs[1])
        point = node.inputs[2] if len(node.inputs) > 2 else None
        zero = np.zeros((), np.int32) if point is None else self._rewriter.data(point)
        if integers is None or scale is None or zero is None or value.type.dtype is not DType.F32:
            return None
        if not np.isfinite(scale).all() or (scale <= 0).any() or scale.dtype != np.float32:
            return None
        return _Quantized(integers, scale, zero)

    def _points(self, value: Value | None) -> _Quantized | None:
        """Return the quantized form of a value if it consists of bytes with one scale for the whole
        tensor; else None."""
        quantized = self._quantized(value)
        if quantized is None or quantized.integers.type.dtype not in (DType.I8, DType.U8):
            return None
        return quantized if quantized.scale.size == 1 and quantized.zero.size == 1 else None

    def _weights(self, value: Value | None, axis: int) -> tuple[Array, Array] | None:
        """Return two arrays for constant quantized weights: the integers minus their zero points,
        as i8, and the scales. There is one scale, or one for each index of `axis`. Return None if
        the weights are not quantized constants, or if the integers do not fit in i8."""
        quantized = self._quantized(value)
        data = None if quantized is None else self._rewriter.data(quantized.integers)
        if quantized is None or data is None or data.dtype not in (np.int8, np.uint8):
            return None
        if any(n != 1 for at, n in enumerate(_over(quantized.scale, data.ndim)) if at != axis):
            return None
        centred = data.astype(np.int16) - quantized.zero.astype(np.int16)
        low, high = DType.I8.limits
        if centred.size and (centred.min() < low or centred.max() > high):
            return None
        return centred.astype(np.int8), quantized.scale.reshape(-1)

    # Products -------------------------------------------------------------------------------------

    def _product(self, node: Node) -> tuple[Node, ...] | None:
        match product_of(node):
            case Product.CONVOLUTION:
                return self._convolution(node)
            case Product.MATRIX:
                return self._matrix_product(node)
            case _:
                return None

    def _convolution(self, node: Node) -> tuple[Node, ...] | None:
        x = self._points(node.inputs[0])
        weights = self._weights(node.inputs[1], axis=0)
        if x is None or weights is None:
            return None
        data, scales = weights
        zero, group = int(x.zero.reshape(-1)[0]), int(node.attr("group", 1))
        is_depthwise = group > 1 and data.shape[1] == 1
        if group > 1 and not is_depthwise and not self._takes_groups(data, group):
            return None
        form = self._depthwise if is_depthwise else self._in_groups
        operands = form(node, x.integers, data, zero)
        if operands is None:
            return None
        points, data, attrs, padding_nodes = operands
        total = DType.F32 if is_depthwise else DType.I32
        factor = np.broadcast_to(x.scale.reshape(-1) * scales, (data.shape[0],))
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        added, rest = self._split_bias(bias, factor, data.shape[0])
        added = added - zero * data.sum(axis=tuple(range(1, data.ndim)), dtype=np.int32)
        channels = (1, -1) + (1,) * (data.ndim - 2)
        operand_values = (points, self._weights_like(node.inputs[1], data))
        sums = Node(
            "Conv", operand_values, node.outputs, attributes(**attrs, accumulator=total.value)
        )
        return (
            *padding_nodes,
            *self._scaled(node, sums, factor.reshape(channels), added, rest, channels),
        )

    def _depthwise(
        self, node: Node, x: Value, weights: Array, zero: int
    ) -> tuple[Value, Array, dict[str, Attribute], tuple[Node, ...]] | None:
        """Return the operand, weights, attributes and padding nodes of a depthwise convolution for
        sums in f32; the padding nodes exist if the padding value is not zero."""
        if weights.shape[1] != 1 or math.prod(weights.shape[2:]) > _EXACT_TAPS:
            return None
        attrs, nodes = dict(node.attrs), list[Node]()
        if zero:
            window = window_of(attrs, x.type.shape[2:], weights.shape[2:])
            if not all(isinstance(pad, int) for pad in window.before + window.after):
                return None
            before, after = (0, 0, *map(number, window.before)), (0, 0, *map(number, window.after))
            attrs.pop("auto_pad", None)
            attrs["pads"] = (0,) * 2 * window.rank
            if any(before + after):
                x, pad = self._padded(x, before, after, zero)
                nodes.append(pad)
        return x, weights.astype(np.float32), attrs, tuple(nodes)

    def _in_groups(
        self, node: Node, x: Value, weights: Array, zero: int
    ) -> tuple[Value, Array, dict[str, Attribute], tuple[Node, ...]] | None:
        """Return the operand, weights, attributes and preparing nodes of a convolution for dot
        products.

        The elements of one dot product are neighbours along the channels or, in images of few
        channels, which are stored plane by plane, neighbours along a row. Incomplete groups are
        filled with zero weights. The padding is stored in memory if its value is not zero, or if
        the image is stored plane by plane.
        """
        rank, attrs = weights.ndim, dict(node.attrs)
        window = window_of(attrs, x.type.shape[2:], weights.shape[2:])
        channels, lacking = number(x.type.shape[1]), [0] * rank
        is_planar = channels < self._block
        if is_planar and (window.kernel[-1] == 1 or window.dilations[-1] != 1):
            return None
        if is_planar:
            lacking[-1] = -window.kernel[-1] % self._group
        else:
            lacking[1] = -channels % self._group
        before, after = (0,) * rank, tuple(lacking)
        if zero or is_planar:
            if not all(isinstance(pad, int) for pad in window.before + window.after):
                return None
            before = (0, 0, *map(number, window.before))
            after = (
                0,
                lacking[1],
                *map(number, window.after[:-1]),
                number(window.after[-1]) + lacking[-1],
            )
            attrs.pop("auto_pad", None)
            attrs["pads"] = (0,) * 2 * window.rank
        attrs["kernel_shape"] = (*window.kernel[:-1], window.kernel[-1] + lacking[-1])
        if not any(before + after):
            return x, weights, attrs, ()
        points, pad = self._padded(x, before, after, zero)
        return points, np.pad(weights, [(0, n) for n in lacking]), attrs, (pad,)

    def _matrix_product(self, node: Node) -> tuple[Node, ...] | None:
        is_plain = node.attr("alpha", 1.0) == 1 == node.attr("beta", 1.0)
        is_transposed = bool(node.attr("transB", 0))
        x = self._points(node.inputs[0])
        w = node.inputs[1]
        if x is None or w is None or w.type.rank != 2 or not is_plain or node.attr("transA", 0):
            return None
        weights = self._weights(w, axis=0 if is_transposed else 1)
        if weights is None or x.integers.type.rank < 2:
            return None
        data, scales = weights[0].T if is_transposed else weights[0], weights[1]
        if data.shape[0] % self._group:
            return None
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        factor = np.broadcast_to(x.scale.reshape(-1) * scales, (data.shape[1],))
        if bias is not None and bias.type.shape not in ((), (1,), (data.shape[1],)):
            return None
        added, rest = self._split_bias(bias, factor, data.shape[1])
        added = added - int(x.zero.reshape(-1)[0]) * data.sum(axis=0, dtype=np.int32)
        operands = (x.integers, self._weights_like(w, np.ascontiguousarray(data)))
        total = Node("MatMul", operands, node.outputs, attributes(accumulator="i32"))
        if scales.size == 1 and not added.any():
            factor = factor[:1]
        return self._scaled(node, total, factor.reshape(1, -1), added, rest, (1, -1))

    def _split_bias(
        self, bias: Value | None, factor: Array, channels: int
    ) -> tuple[Array, Value | None]:
        """Split a bias into a part that is added to the integer sums and a part that is added to
        the scaled product. If the bias is quantized with the scale of the product, return its
        integers and None. Otherwise return zeros and the bias itself, which may be None."""
        nothing = np.zeros(channels, np.int32)
        quantized = self._quantized(bias)
        data = None if quantized is None else self._rewriter.data(quantized.integers)
        if quantized is None or data is None or data.dtype != np.int32 or data.shape != (channels,):
            return nothing, bias
        scale = np.broadcast_to(quantized.scale.reshape(-1), (channels,))
        if quantized.zero.any() or not np.allclose(scale, factor, rtol=_CLOSE, atol=0):
            return nothing, bias
        return data, None

    def _scaled(
        self,
        node: Node,
        total: Node,
        factor: Array,
        added: Array,
        rest: Value | None,
        channels: tuple[int, ...],
    ) -> tuple[Node, ...]:
        """Return the nodes that compute `(sums + added) * factor + rest` in f32 in place of `node`,
        where `total` is the node that computes the integer sums.

        `rest` is the part of the bias that is not an integer multiple of the scale. It runs along
        the axis at which `channels` is -1.
        """
        (y,), nodes = node.outputs, []
        kind = DType(str(total.attr("accumulator")))
        sums = self._like(y, f"{y.name}_sums", kind)
        if added.any():
            bias = self._rewriter.constant(added.astype(kind.numpy), f"{y.name}_bias")
            if product_of(total) is Product.CONVOLUTION:
                nodes.append(
                    dataclasses.replace(total, inputs=(*total.inputs, bias), outputs=(sums,))
                )
            else:
                alone = self._like(y, f"{y.name}_product", kind)
                nodes.append(dataclasses.replace(total, outputs=(alone,)))
                nodes.append(Node("Add", (alone, bias), (sums,)))
        else:
            nodes.append(dataclasses.replace(total, outputs=(sums,)))
        nodes[0] = dataclasses.replace(nodes[0], origin=node.origin)
        wide = sums
        if kind is not DType.F32:
            wide = self._like(y, f"{y.name}_sums_f32", DType.F32)
            nodes.append(Node("Cast", (sums,), (wide,), attributes(to=DType.F32.value)))
        scales = self._rewriter.constant(factor.astype(np.float32), f"{y.name}_factor")
        if rest is None:
            return (*nodes, Node("Mul", (wide, scales), (y,)))
        scaled = self._like(y, f"{y.name}_scaled", DType.F32)
        nodes.append(Node("Mul", (wide, scales), (scaled,)))
        rest, before = self._along(rest, channels)
        return (*nodes, *before, Node("Add", (scaled, rest), (y,)))

    def _along(self, bias: Value, channels: tuple[int, ...]) -> tuple[Value, tuple[Node, ...]]:
        """Return the bias reshaped to broadcast along one axis of the result, and the node that
        reshapes it. `channels` is the target shape: -1 for the axis of the channels, 1 for all
        other axes."""
        extents = tuple(bias.type.shape[0] if n == -1 and bias.type.rank else 1 for n in channels)
        target = self._rewriter.constant(np.array(extents, np.int64), f"{bias.name}_shape")
        shaped = Value(
            self._rewriter.fresh(f"{bias.name}_shaped"), TensorType(bias.type.dtype, extents)
        )
        return shaped, (Node("Reshape", (bias, target), (shaped,)),)

    def _padded(
        self, x: Value, before: tuple[Any, ...], after: tuple[Any, ...], zero: int
    ) -> tuple[Value, Node]:
        """Return a tensor padded with `zero`, by `before` and `after` elements along each axis, and
        the node that pads it."""
        pads = np.array((*before, *after), np.int64)
        sizes = tuple(n + a + b for n, a, b in zip(x.type.shape, before, after, strict=True))
        kind = dataclasses.replace(x.type, shape=sizes)
        wider = Value(self._rewriter.fresh(f"{x.name}_padded"), kind)
        operands = (
            x,
            self._rewriter.constant(pads, f"{x.name}_pads"),
            self._rewriter.constant(np.array(zero, x.type.dtype.numpy), f"{x.name}_zero"),
        )
        return wider, Node("Pad", operands, (wider,))

    def _weights_like(self, value: Value | None, data: Array) -> Value:
        """Return the existing integers of dequantized weights if they equal `data`, else a new
        constant."""
        quantized = self._quantized(value)
        assert quantized is not None
        integers = self._rewriter.data(quantized.integers)
        if integers is not None and np.array_equal(integers, data) and integers.dtype == data.dtype:
            return quantized.integers
        return self._rewriter.constant(data, f"{quantized.integers.name}_i8")

    def _like(self, value: Value, hint: str, dtype: DType) -> Value:
        return Value(self._rewriter.fresh(hint), dataclasses.replace(value.type, dtype=dtype))

    # Averages -------------------------------------------------------------------------------------

    def _average(self, node: Node) -> tuple[Node, ...] | None:
        """For a global average of dequantized bytes, return nodes that sum the integers and scale
        their sum once, as `scale / count * (sum − count · zero)`. Return None for any other
        node."""
        x = self._points(node.inputs[0]) if GLOBAL_AVERAGE.matches(node) else None
        if x is None:
            return None
        extents = x.integers.type.shape[2:]
        count = math.prod(extent for extent in extents if isinstance(extent, int))
        if not all(isinstance(extent, int) for extent in extents) or not 0 < count <= _MOST_POINTS:
            return None
        (y,) = node.outputs
        wide = self._like(x.integers, f"{y.name}_wide", DType.I32)
        sums = self._like(y, f"{y.name}_sums", DType.I32)
        axes = np.arange(2, x.integers.type.rank, dtype=np.int64)
        operands = wide, self._rewriter.constant(axes, f"{y.name}_axes")
        widened = Node("Cast", (x.integers,), (wide,), attributes(to=DType.I32.value))
        nodes = [widened, Node("ReduceSum", operands, (sums,), origin=node.origin)]
        if zero := int(x.zero.reshape(-1)[0]):
            bias = self._rewriter.constant(np.array(-count * zero, np.int32), f"{y.name}_bias")
            centered = self._like(y, f"{y.name}_centered", DType.I32)
            nodes.append(Node("Add", (sums, bias), (centered,)))
            sums = centered
        real = self._like(y, f"{y.name}_sums_f32", DType.F32)
        nodes.append(Node("Cast", (sums,), (real,), attributes(to=DType.F32.value)))
        factor = np.array(float(x.scale.reshape(-1)[0]) / count, np.float32)
        scale = self._rewriter.constant(factor, f"{y.name}_factor")
        self._of_integers.add(y.name)
        return (*nodes, Node("Mul", (real, scale), (y,)))

    # Between products -----------------------------------------------------------------------------

    def _moved(self, node: Node) -> tuple[Node, ...] | None:
        """Return the nodes in which an operator that only moves elements is applied to integers.

        `node` must be a QuantizeLinear that restores the integers from which the operands of the
        operator were dequantized, with the same scale; else return None.
        """
        if not QUANTIZE.matches(node):
            return None
        mover = self._rewriter.producer(node.inputs[0])
        if mover is None or len(mover.outputs) != 1:
            return None
        operator = lookup(mover.op)
        moves = operator.moved(mover) is not None
        count = len(operator.data_operands(mover)) if moves else 0
        sources = [self._quantized(value) for value in mover.inputs[:count]]
        integers = [
            source.integers
            for source in sources
            if source is not None and self._is_inverse(node, source)
        ]
        if not count or len(integers) != count:
            return None
        inputs = (*integers, *mover.inputs[count:])
        return (dataclasses.replace(mover, inputs=inputs, outputs=node.outputs),)

    def _is_inverse(self, node: Node, source: _Quantized) -> bool:
        """Check whether a QuantizeLinear restores exactly the integers of `source`."""
        scale = self._rewriter.data(node.inputs[1])
        point = node.inputs[2] if len(node.inputs) > 2 else None
        zero = np.zeros((), np.int32) if point is None else self._rewriter.data(point)
        if (
            scale is None
            or zero is None
            or node.outputs[0].type.dtype is not source.integers.type.dtype
        ):
            return False
        sizes = {scale.size, zero.size, source.scale.size, source.zero.size}
        same = sizes == {1} and scale.reshape(-1)[0] == source.scale.reshape(-1)[0]
        return bool(same and int(zero.reshape(-1)[0]) == int(source.zero.reshape(-1)[0]))

    def _requantized(self, node: Node) -> tuple[Node, ...] | None:
        """For a QuantizeLinear of a value that was computed from integers, return nodes that
        multiply by the reciprocal of the scale instead of dividing by the scale. Return None for
        any other node."""
        if not QUANTIZE.matches(node) or node.attr("precision") != DType.F32.value:
            return None
        x, scale = node.inputs[0], self._rewriter.data(node.inputs[1])
        if x is None or scale is None or x.name not in self._of_integers:
            return None
        if (
            scale.size != 1
            or not np.isfinite(scale).all()
            or scale <= 0
            or x.type.dtype is not DType.F32
        ):
            return None
        with np.errstate(over="ignore"):
            factor = np.float32(1) / scale.astype(np.float32)
        if not np.isfinite(factor).all() or scale == 1:
            return None
        (y,) = node.outputs
        scaled = self._like(x, f"{y.name}_scaled", DType.F32)
        unit_scale = self._rewriter.constant(np.ones((), np.float32), f"{y.name}_one")
        factors = self._rewriter.constant(factor, f"{y.name}_factor")
        return (
            Node("Mul", (x, factors), (scaled,)),
            dataclasses.replace(node, inputs=(scaled, unit_scale, *node.inputs[2:])),
        )


def _over(array: Array, rank: int) -> tuple[int, ...]:
    """Return the shape of an array after broadcasting to `rank` axes."""
    return (1,) * (rank - array.ndim) + array.shape
