"""The pass `match-signedness`, which converts bytes to the signedness that the target's dot
products take."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType
from farrier.ops import Moves, Product, lookup, product_of
from farrier.ops.broadcast import ADD, SUB
from farrier.ops.fixed_point import REQUANTIZE
from farrier.ops.matmul import MATMUL
from farrier.ops.pad import PAD
from farrier.ops.quantize import DEQUANTIZE, QUANTIZE
from farrier.ops.window import window_of
from farrier.passes.rewriting import Rewriter
from farrier.passes.settings import Settings
from farrier.targets.cpu.target import CpuTarget, as_cpu

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

_OTHER = {DType.U8: DType.I8, DType.I8: DType.U8}
_SIGN = 0x80  # The bit in which a byte differs from the byte of the other signedness.
# These operators move bytes by position, or select the greatest, which is the same for both
# signednesses since the change preserves the order.
_MOVED = (Moves.ONCE, Moves.EXTREME)


def match_signedness(graph: Graph, settings: Settings) -> Graph:
    """Convert u8 tensors to i8, or the reverse, for products with constant weights. A tensor is
    converted if it is the first factor of a product, and the target has a dot product only for the
    other signedness. Each byte decreases or increases by 128, and the sums of the product are
    corrected by a constant. The padding of the product is stored in memory, because its value
    becomes nonzero.

    The zero points of QuantizeLinear, Requantize and DequantizeLinear nodes of such a tensor change
    by 128, and operators that move its elements move the new bytes. Bytes from another source, or
    for another reader, are converted. All integers represent the same values as before, except that
    ONNX does not specify the integer to which a NaN is quantized.

    before:
        @graph
        def g(x: f32[2, 8], s: f32[()]):
            z: u8[()] = constant(3)
            w: i8[8, 2] = constant([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8])
            q: u8[2, 8] = QuantizeLinear(x, s, z, precision='f32', saturate=1, to='u8')
            y: i32[2, 2] = MatMul(q, w, accumulator='i32')
            return y

    after:
        @graph
        def g(x: f32[2, 8], s: f32[()]):
            z: u8[()] = constant(3)
            w: i8[8, 2] = constant([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8])
            q_zero: i8[()] = constant(-125)
            y_moved: i32[1, 2] = constant([4096, 5120])
            q_i8: i8[2, 8] = QuantizeLinear(x, s, q_zero, precision='f32', saturate=1, to='i8')
            y_product: i32[2, 2] = MatMul(q_i8, w, accumulator='i32')
            y: i32[2, 2] = Add(y_product, y_moved)
            return y
    """
    changed = _tensors(graph, as_cpu(settings.target))
    return _Change(graph, changed).run() if changed else graph


# Which tensors change -----------------------------------------------------------------------------


def _tensors(graph: Graph, target: CpuTarget) -> frozenset[str]:
    """Return the names of the tensors to convert to the other signedness: the first factors of
    products that need it, and all tensors from which these are derived, or which derive from these,
    by nodes that only move elements."""
    constants = {constant.value.name for constant in graph.constants}
    changing = {
        node.inputs[0].name
        for node in graph.nodes
        if node.inputs
        and node.inputs[0] is not None
        and _needs_other_signedness(node, constants, target)
    }
    movers = [
        {value.name for value in (*_moved_by(node), *node.outputs) if value is not None}
        for node in graph.nodes
        if _moves_bytes(node)
    ]
    settled = not changing
    while not settled:
        settled = True
        for names in movers:
            if changing & names and not names <= changing:
                changing |= names
                settled = False
    return frozenset(changing - constants)


def _needs_other_signedness(node: Node, constants: set[str], target: CpuTarget) -> bool:
    """Check whether the target has no dot product for the operands of a node, but would have one if
    the first factor were of the other signedness."""
    if not _is_movable(node, constants) or node.attr("group", 1) != 1:
        return False
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    kind, weights = x.type.dtype, w.type.dtype
    as_it_is = target.dot_of(kind, weights, DType.I32)
    return as_it_is is None and target.dot_of(_OTHER[kind], weights, DType.I32) is not None


def _is_movable(node: Node, constants: set[str]) -> bool:
    """Check whether a node is a product with constant weights whose first factor may be shifted by
    128, because the correction of its sums is then constant."""
    is_convolution = product_of(node) is Product.CONVOLUTION
    is_product = is_convolution or MATMUL.matches(node)
    if not is_product or node.outputs[0].type.dtype is not DType.I32:
        return False
    x, w = node.inputs[:2]
    if x is None or w is None or w.name not in constants or x.type.dtype not in _OTHER:
        return False
    if x.name in constants or min(x.type.rank, w.type.rank) < 2:
        return False
    return not is_convolution or _pads(node) is not None


def _pads(node: Node) -> tuple[int, ...] | None:
    """Return the padding of all axes of a convolution, first at the start of each axis, then at the
    end; None if it depends on open (dynamic) sizes."""
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    window = window_of(dict(node.attrs), x.type.shape[2:], w.type.shape[2:])
    pads = (0, 0, *window.before, 0, 0, *window.after)
    constant_pads = tuple(pad for pad in pads if isinstance(pad, int))
    return constant_pads if len(constant_pads) == len(pads) else None


def _moves_bytes(node: Node) -> bool:
    x = node.inputs[0] if node.inputs else None
    if x is None or x.type.dtype not in _OTHER or len(node.outputs) != 1:
        return False
    return lookup(node.op).moved(node) in _MOVED or PAD.matches(node)


def _moved_by(node: Node) -> tuple[Value | None, ...]:
    """Return the inputs whose elements a data-movement node moves."""
    return lookup(node.op).data_operands(node)


def _other_bytes(data: Array) -> Array:
    """Return an array of bytes converted to the other signedness: each value changes by 128."""
    kind = _OTHER[DType.from_numpy(data.dtype)].numpy
    other: Array = (np.ascontiguousarray(data).view(np.uint8) ^ np.uint8(_SIGN)).view(kind)
    return other.reshape(data.shape)


# The change ---------------------------------------------------------------------------------------


class _Change:
    def __init__(self, graph: Graph, changed: frozenset[str]) -> None:
        self._graph = graph
        self._changed = changed
        self._rewriter = Rewriter(graph)
        self._constants = {constant.value.name for constant in graph.constants}
        self._there = {value.name for value in graph.inputs}  # Tensors computed as in the model.
        self._others: dict[str, Value] = {}  # Changed tensors, by the names of the originals.
        self._moved: dict[str, tuple[Node, Value, Array]] = {}  # Corrected sums.

    def run(self) -> Graph:
        for node in self._graph.nodes:
            self._rewrite(node)
        for value in self._graph.outputs:
            self._keep(value)
        return self._rewriter.finish()

    def _rewrite(self, node: Node) -> None:
        x = node.inputs[0] if node.inputs else None
        changes = node.outputs[0].name in self._changed
        if changes and QUANTIZE.matches(node):
            self._quantize(node)
        elif changes and REQUANTIZE.matches(node):
            self._requantize(node)
        elif changes and _moves_bytes(node):
            self._move(node)
        elif x is None or x.name not in self._changed:
            self._emit(node)
        elif DEQUANTIZE.matches(node):
            self._dequantize(node, x)
        elif _is_movable(node, self._constants):
            self._multiply(node, x)
        else:
            self._emit(node)

    def _emit(self, node: Node) -> None:
        """Emit a node that reads its tensors with the original signedness."""
        if self._folds_correction(node):
            return
        for value in node.inputs:
            if value is not None:
                self._keep(value)
        self._rewriter.emit(node)
        self._there |= {value.name for value in node.outputs}

    # Bytes ----------------------------------------------------------------------------------------

    def _other(self, value: Value) -> Value:
        """Return a tensor converted to the other signedness."""
        if value.name not in self._others:
            data = self._rewriter.data(value)
            if data is None:
                self._others[value.name] = self._like(value)
                self._convert(value, self._others[value.name])
            else:
                other = self._rewriter.constant(_other_bytes(data), self._hint(value))
                self._others[value.name] = other
        return self._others[value.name]

    def _keep(self, value: Value) -> None:
        """Make sure that a tensor also exists with the original signedness, by converting it if
        necessary."""
        if value.name in self._others and value.name not in self._there | self._constants:
            self._convert(self._others[value.name], value)
            self._there.add(value.name)

    def _convert(self, source: Value, wanted: Value) -> None:
        kind = wanted.type.dtype
        cast = Value(self._rewriter.fresh(f"{wanted.name}_bits"), wanted.type)
        self._rewriter.emit(Node("Cast", (source,), (cast,), attributes(to=kind.value)))
        bit = np.array(_SIGN, np.uint8).view(kind.numpy)
        sign = self._rewriter.constant(bit, f"{wanted.name}_sign")
        self._rewriter.emit(Node("BitwiseXor", (cast, sign), (wanted,)))

    def _like(self, value: Value) -> Value:
        kind = dataclasses.replace(value.type, dtype=_OTHER[value.type.dtype])
        return Value(self._rewriter.fresh(self._hint(value)), kind)

    def _hint(self, value: Value) -> str:
        return f"{value.name}_{_OTHER[value.type.dtype].value}"

    def _zero_point(self, node: Node, kind: DType) -> Value:
        """Return the zero point of a node, whose tensor had the dtype `kind`, for the other
        signedness."""
        point = node.inputs[2] if len(node.inputs) > 2 else None
        if point is not None and self._rewriter.constant_of(point) is None:
            return self._other(point)
        points = np.zeros((), kind.numpy) if point is None else self._rewriter.data(point)
        assert points is not None
        return self._rewriter.constant(_other_bytes(points), f"{node.outputs[0].name}_zero")

    def _quantize(self, node: Node) -> None:
        (y,) = node.outputs
        for value in node.inputs[:2]:
            assert value is not None
            self._keep(value)
        self._others[y.name] = self._like(y)
        zero = self._zero_point(node, y.type.dtype)
        attrs = attributes(**{**dict(node.attrs), "to": _OTHER[y.type.dtype].value})
        quantize = dataclasses.replace(
            node, inputs=(*node.inputs[:2], zero), outputs=(self._others[y.name],), attrs=attrs
        )
        self._rewriter.emit(quantize)

    def _requantize(self, node: Node) -> None:
        """Emit a Requantize whose zero point and bounds are moved by 128."""
        (y,) = node.outputs
        for value in node.inputs:
            if value is not None:
                self._keep(value)
        other = self._others[y.name] = self._like(y)
        attrs = dict(node.attrs)
        step = -128 if y.type.dtype is DType.U8 else 128
        for name in ("zero", "low", "high"):
            attrs[name] = node.attr(name) + step
        attrs["to"] = other.type.dtype.value
        moved = dataclasses.replace(node, outputs=(other,), attrs=attributes(**attrs))
        self._rewriter.emit(moved)

    def _dequantize(self, node: Node, x: Value) -> None:
        zero = self._zero_point(node, x.type.dtype)
        inputs = (self._other(x), node.inputs[1], zero)
        self._rewriter.emit(dataclasses.replace(node, inputs=inputs))
        self._there.add(node.outputs[0].name)

    def _move(self, node: Node) -> None:
        (y,) = node.outputs
        moved = [value and self._other(value) for value in _moved_by(node)]
        inputs = [*moved, *node.inputs[len(moved) :]]
        if PAD.matches(node):
            value = inputs[2] if len(inputs) > 2 else None
            if value is None:
                value = self._rewriter.constant(np.zeros((), y.type.dtype.numpy), f"{y.name}_value")
            inputs[2:3] = [self._other(value)]
        self._others[y.name] = self._like(y)
        outputs = (self._others[y.name],)
        self._rewriter.emit(dataclasses.replace(node, inputs=tuple(inputs), outputs=outputs))

    # Sums -----------------------------------------------------------------------------------------

    def _multiply(self, node: Node, x: Value) -> None:
        """Emit the product `node` with `x` as its first factor, which is converted to the other
        signedness, and the addition that corrects its sums."""
        (y,), other, w = node.outputs, self._other(x), node.inputs[1]
        weights = self._rewriter.data(w)
        assert weights is not None
        step = 128 if x.type.dtype is DType.U8 else -128
        self._there.add(y.name)
        if product_of(node) is Product.CONVOLUTION:
            lack = step * weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int64)
            self._convolve(node, other, lack)
            return
        lack = step * weights.sum(axis=-2, keepdims=True, dtype=np.int64)
        total = Value(self._rewriter.fresh(f"{y.name}_product"), y.type)
        product = dataclasses.replace(node, inputs=(other, w), outputs=(total,))
        self._rewriter.emit(product)
        moved = self._rewriter.constant(lack.astype(np.int32), f"{y.name}_moved")
        added = Node("Add", (total, moved), (y,))
        self._rewriter.emit(added)
        self._moved[y.name] = (added, total, lack)

    def _convolve(self, node: Node, x: Value, lack: Array) -> None:
        """Emit a convolution whose image `x` is converted to the other signedness. The correction
        `lack` is added to the bias, and the padding is stored in memory."""
        pads, attrs = _pads(node), dict(node.attrs)
        assert pads is not None
        if any(pads):
            x = self._padded(x, pads)
            attrs.pop("auto_pad", None)
            attrs["pads"] = (0,) * (len(pads) - 4)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        name = f"{node.outputs[0].name}_moved"
        bias_data = np.zeros((), np.int64) if bias is None else self._rewriter.data(bias)
        if bias_data is None:
            assert bias is not None
            moved = self._rewriter.constant(lack.astype(np.int32), name)
            total = Value(self._rewriter.fresh(f"{bias.name}_moved"), bias.type)
            self._rewriter.emit(Node("Add", (bias, moved), (total,)))
        else:
            total = self._rewriter.constant((bias_data + lack).astype(np.int32), name)
        inputs = (x, node.inputs[1], total)
        self._rewriter.emit(dataclasses.replace(node, inputs=inputs, attrs=attributes(**attrs)))

    def _padded(self, x: Value, pads: tuple[int, ...]) -> Value:
        """Return the image `x`, which is converted to the other signedness, with padding. The value
        of the padding is the byte that represents zero after the conversion."""
        rank = len(pads) // 2
        sides = zip(x.type.shape, pads[:rank], pads[rank:], strict=True)
        kind = dataclasses.replace(x.type, shape=tuple(n + a + b for n, a, b in sides))
        wider = Value(self._rewriter.fresh(f"{x.name}_padded"), kind)
        zero = np.array(_SIGN, np.uint8).view(x.type.dtype.numpy)
        operands = (
            x,
            self._rewriter.constant(np.array(pads, np.int64), f"{x.name}_pads"),
            self._rewriter.constant(zero, f"{x.name}_zero"),
        )
        self._rewriter.emit(Node("Pad", operands, (wider,)))
        return wider

    def _folds_correction(self, node: Node) -> bool:
        """Try to fold the correction of a product into `node`, which adds a constant to the
        product's sums or subtracts one from them. If the sums have no other reader, emit the node
        with the correction included in its constant, and return True. Otherwise return False."""
        is_sum = ADD.matches(node)
        if not is_sum and not SUB.matches(node):
            return False
        sums, rest = node.inputs
        if is_sum and rest is not None and rest.name in self._moved:
            sums, rest = rest, sums
        constant_data = self._rewriter.data(rest)
        if sums is None or sums.name not in self._moved or constant_data is None:
            return False
        if not self._rewriter.single_use(sums):
            return False
        added, total, lack = self._moved.pop(sums.name)
        self._rewriter.withdraw(added)
        (y,), sign = node.outputs, 1 if is_sum else -1
        all_of_it = (lack + sign * constant_data.astype(np.int64)).astype(np.int32)
        constant = self._rewriter.constant(all_of_it, f"{y.name}_moved")
        self._rewriter.emit(dataclasses.replace(node, op="Add", inputs=(total, constant)))
        self._there.add(y.name)
        return True
