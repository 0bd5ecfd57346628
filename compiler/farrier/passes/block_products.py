"""The products with weights that are quantized in blocks, computed from the stored codes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.intrinsics import dot_of
from farrier.intrinsics.dot import held_as
from farrier.ir.dim import Extent, product
from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, Shape, TensorType
from farrier.passes.fold_constants import fold_node, is_foldable
from farrier.passes.rewriting import Rewriter, derived
from farrier.passes.settings import Settings
from farrier.targets import Target

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

_FEWEST = 8  # Columns that are worth a kernel of their own: a vector of AVX2.
_UNSIGNED = {DType.I4: DType.U4, DType.I2: DType.U2}
_COLUMN, _BLOCK, _WITHIN = "column", "block", "within"  # The meanings of an axis of weights.

Axis: TypeAlias = tuple[str, ...]  # The meaning of an axis; several if axes were merged.


def block_products(graph: Graph, settings: Settings) -> Graph:
    """Multiplies by the codes of weights that were dequantized from integers of less than a byte,
    or in blocks: the dequantized matrix is never made. Codes of less than a byte become unsigned,
    with the middle of their range as zero point, so that unpacking them takes no sign. Rows that no
    block divides get zeros behind them. Rows that were quantized in the same blocks are multiplied
    as integers where the target has dot products for these.

    before:
        @graph
        def g(x: f32[1, 2]):
            w: u4[1, 2, 8] = constant([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0])
            s: f32[1, 1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            k: i64[2] = constant([2, 8])
            d: f32[1, 2, 8] = DequantizeLinear(w, s, to='f32')
            m: f32[2, 8] = Reshape(d, k, allowzero=0)
            y: f32[1, 8] = MatMul(x, m)
            return y

    after:
        @graph
        def g(x: f32[1, 2]):
            w: u4[1, 2, 8] = constant([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0])
            s: f32[1, 1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            k: i64[2] = constant([2, 8])
            w_codes: u4[1, 2, 8] = constant([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0])
            s_scales: f32[1, 8] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
            d: f32[1, 2, 8] = DequantizeLinear(w, s, to='f32')
            m: f32[2, 8] = Reshape(d, k, allowzero=0)
            y: f32[1, 8] = BlockMatMul(x, w_codes, s_scales, zero=0)
            return y
    """
    rewriter = Rewriter(graph)
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        if node.op == "UnpackBits" and is_foldable(node, rewriter):
            fold_node(node, rewriter)
            continue
        for replacement in _product(node, rewriter, settings.target) or (node,):
            rewriter.emit(replacement)
    return rewriter.finish()


@dataclasses.dataclass(frozen=True, slots=True)
class _Weights:
    """A dequantized matrix [rows, columns] as constants."""

    codes: Value  # [blocks, block, columns]
    scales: Value  # [blocks, columns], as are the zero points
    zeros: Value | None
    zero: int  # The zero point of all codes if `zeros` is None.
    rows: int


def _product(node: Node, rewriter: Rewriter, target: Target) -> tuple[Node, ...]:
    """Return the nodes that multiply by codes in the place of `node`, or none if it is not such a
    product."""
    if node.op not in ("MatMul", "Gemm") or "accumulator" in dict(node.attrs):
        return ()
    x, w = node.inputs[:2]
    assert x is not None
    assert w is not None
    turned = False
    if node.op == "Gemm":
        factors = node.attr("alpha", 1.0), node.attr("beta", 1.0)
        if factors != (1, 1) or node.attr("transA", 0):
            return ()
        turned = bool(node.attr("transB", 0))
    weights = _weights(w, turned, rewriter)
    if weights is None:
        return ()
    rows = _rows(x, weights, rewriter)
    has_real_zeros = weights.zeros is not None and weights.zeros.type.dtype.is_float
    if rows is not None and not has_real_zeros and has_dot(weights.codes.type.dtype, target):
        return tuple(_multiplied(node, x, weights, rewriter, rows))
    return tuple(_multiplied(node, x, weights, rewriter))


def _rows(x: Value, weights: _Weights, rewriter: Rewriter) -> tuple[Value, Value] | None:
    """Return the codes of rows that were dequantized from i8 in the blocks of the weights, and
    their scales, or None. Both have an axis of the blocks, and one of the elements of a block."""
    node = rewriter.producer(x)
    while node is not None and node.op in ("Cast", "Slice", "Reshape"):
        if node.op == "Slice" and not _drops_the_end(node, rewriter):
            return None
        node = rewriter.producer(node.inputs[0])
    if node is None or node.op != "DequantizeLinear" or len(node.inputs) != 2:
        return None
    codes, scales = node.inputs
    assert codes is not None
    assert scales is not None
    blocks, block, _ = weights.codes.type.static_shape
    lead = x.type.shape[:-1]
    shapes = codes.type.shape, scales.type.shape
    if codes.type.dtype is not DType.I8 or shapes != ((*lead, blocks, block), (*lead, blocks, 1)):
        return None
    return codes, scales


def _drops_the_end(node: Node, rewriter: Rewriter) -> bool:
    """Check whether a Slice only drops elements at the end of the last axis."""
    starts = rewriter.data(node.inputs[1])
    steps = rewriter.data(node.inputs[4]) if len(node.inputs) > 4 else None
    before, after = node.inputs[0], node.outputs[0]
    assert before is not None
    if starts is None or starts.any() or (steps is not None and (steps != 1).any()):
        return False
    return before.type.shape[:-1] == after.type.shape[:-1]


def has_dot(codes: DType, target: Target) -> bool:
    """Check whether the target has dot products of codes and i8."""
    dots = (dot_of(kind, DType.I8, DType.I32, target) for kind in held_as(codes))
    return any(dot is not None for dot in dots)


def _multiplied(
    node: Node,
    x: Value,
    weights: _Weights,
    rewriter: Rewriter,
    rows: tuple[Value, Value] | None = None,
) -> list[Node]:
    nodes: list[Node] = []

    def add(op: str, inputs: Sequence[Value], kind: TensorType, hint: str, **attrs: Any) -> Value:
        value = Value(rewriter.fresh(f"{node.outputs[0].name}_{hint}"), kind)
        nodes.append(Node(op, tuple(inputs), (value,), attributes(**attrs), (), node.origin))
        return value

    (output,) = node.outputs
    dtype, rank = output.type.dtype, x.type.rank
    if rows is not None:
        x, row_scales = rows
        shape = (*x.type.shape[:-2], product(x.type.shape[-2:]))
        kind = TensorType(DType.I8, shape)
        x = add("Reshape", (x, _extents(shape, rewriter)), kind, "codes", allowzero=0)
        shape = row_scales.type.shape[:-1]
        kind = TensorType(DType.F32, shape)
        row_scales = add(
            "Reshape", (row_scales, _extents(shape, rewriter)), kind, "scales", allowzero=0
        )
    elif x.type.dtype is not DType.F32:
        x = add("Cast", (x,), TensorType(DType.F32, x.type.shape), "rows", to="f32")
    blocks, block, _ = weights.codes.type.static_shape
    whole: Extent = blocks * block
    if rows is None and whole != weights.rows:
        pads = np.array([0] * (2 * rank - 1) + [whole - weights.rows], np.int64)
        amounts = rewriter.constant(pads, "pads")
        x = add("Pad", (x, amounts), TensorType(DType.F32, (*x.type.shape[:-1], whole)), "whole")
    operands: list[Value | None] = [x, weights.codes, weights.scales]
    if rows is not None:
        operands += [weights.zeros, row_scales]
    elif weights.zeros is not None:
        operands.append(weights.zeros)
    zero = attributes(zero=weights.zero)
    addend = node.inputs[2] if len(node.inputs) > 2 else None
    whole_type = TensorType(DType.F32, output.type.shape)
    if dtype is DType.F32 and addend is None:
        nodes.append(Node("BlockMatMul", tuple(operands), (output,), zero, (), node.origin))
        return nodes
    result = Value(rewriter.fresh(f"{output.name}_product"), whole_type)
    nodes.append(Node("BlockMatMul", tuple(operands), (result,), zero, (), node.origin))
    if addend is not None:
        if dtype is not DType.F32:
            kind = TensorType(DType.F32, addend.type.shape)
            addend = add("Cast", (addend,), kind, "addend", to="f32")
        if dtype is DType.F32:
            nodes.append(Node("Add", (result, addend), (output,), (), (), node.origin))
            return nodes
        result = add("Add", (result, addend), whole_type, "sum")
    nodes.append(Node("Cast", (result,), (output,), attributes(to=dtype.value), (), node.origin))
    return nodes


def _extents(shape: Shape, rewriter: Rewriter) -> Value:
    """A constant of extents, some of which may be dims."""
    is_known = all(isinstance(extent, int) for extent in shape)
    return rewriter.constant(np.array(list(shape), np.int64 if is_known else object), "shape")


def _weights(value: Value, turned: bool, rewriter: Rewriter) -> _Weights | None:
    """Return the constants that a matrix was dequantized from, or None. If `turned`, the matrix is
    [columns, rows]."""
    path: list[Node] = []
    node = rewriter.producer(value)
    while node is not None and node.op in _MOVES:
        path.append(node)
        node = rewriter.producer(node.inputs[0])
    if node is None or node.op != "DequantizeLinear":
        return None
    constants = [rewriter.constant_of(operand) for operand in node.inputs]
    codes, scales, *zeros = constants
    if codes is None or scales is None or None in zeros:
        return None
    for zero in zeros:
        is_one = zero is not None and not zero.value.type.shape and zero.value.type.dtype.is_integer
        if zero is not None and not is_one and zero.value.type.shape != scales.value.type.shape:
            return None
    axes = _axes(codes.value.type, scales.value.type, value.type)
    if axes is None:
        return None
    moved, rows = _moved(axes, path, rewriter)
    order: list[Axis] = [(_BLOCK, _WITHIN), (_COLUMN,)]
    if _BLOCK not in axes:
        order[0] = (_WITHIN,)
    is_worth = codes.value.type.dtype.bits < 8 or _BLOCK in axes
    if moved != (order[::-1] if turned else order) or not is_worth:
        return None
    return _Parts(rewriter, axes, codes, scales, zeros[0] if zeros else None).weights(rows)


_MOVES = frozenset(("Reshape", "Transpose", "Slice", "Cast"))


def _axes(codes: TensorType, scales: TensorType, matrix: TensorType) -> tuple[str, ...] | None:
    """Return the meaning of each axis of the codes, by the axis along which scales repeat."""
    if not (codes.dtype.is_integer and codes.dtype.bits <= 8 and matrix.is_static):
        return None
    shape = codes.static_shape
    if len(shape) == 2 and scales.size == 1:
        return None
    if len(shape) not in (2, 3) or scales.rank != len(shape):
        return None
    pairs = list(zip(scales.static_shape, shape, strict=True))
    within = [axis for axis, (scale, whole) in enumerate(pairs) if scale == 1 and whole > 1]
    if len(within) != 1 or any(scale not in (1, whole) for scale, whole in pairs):
        return None
    (at,) = within
    if len(shape) == 2:
        return (_WITHIN, _COLUMN) if at == 0 else (_COLUMN, _WITHIN)
    if at == 1:
        return (_BLOCK, _WITHIN, _COLUMN)
    return (_COLUMN, _BLOCK, _WITHIN) if at == 2 else None


def _moved(
    axes: tuple[str, ...], path: Sequence[Node], rewriter: Rewriter
) -> tuple[list[Axis] | None, int]:
    """Return the meanings of the axes after the nodes of `path`, whose last node stands first, and
    the number of rows; None if a node does more than merge, permute or cut axes."""
    now: list[Axis] = [(axis,) for axis in axes]
    for node in reversed(path):
        before, after = node.inputs[0], node.outputs[0]
        assert before is not None
        if node.op == "Reshape":
            merged = _merged(now, before.type.static_shape, after.type.static_shape)
            if merged is None:
                return None, 0
            now = merged
        elif node.op == "Transpose":
            order = node.attr("perm") or tuple(reversed(range(len(now))))
            now = [now[axis] for axis in order]
        elif node.op == "Slice" and not _cuts_rows(now, node, rewriter):
            return None, 0
    if not path:
        end = None
    else:
        end = path[0].outputs[0].type.static_shape
    rows = next((at for at, axis in enumerate(now) if _WITHIN in axis), 0)
    return now, 0 if end is None else end[rows]


def _merged(axes: list[Axis], before: tuple[int, ...], after: tuple[int, ...]) -> list[Axis] | None:
    """Return the meanings of the axes after a Reshape, or None unless it merges neighbours."""
    merged: list[Axis] = []
    pairs = iter(zip(axes, before, strict=True))
    for extent in after:
        axis, size = next(pairs, ((), 0))
        while size < extent:
            more, times = next(pairs, ((), 0))
            if not times:
                return None
            axis, size = (*axis, *more), size * times
        if size != extent:
            return None
        merged.append(axis)
    return None if next(pairs, None) else merged


def _cuts_rows(axes: list[Axis], node: Node, rewriter: Rewriter) -> bool:
    """Check whether a Slice only drops rows that fill up the last block."""
    before, after = node.inputs[0], node.outputs[0]
    assert before is not None
    steps = rewriter.data(node.inputs[4]) if len(node.inputs) > 4 else None
    starts = rewriter.data(node.inputs[1])
    if starts is None or starts.any() or (steps is not None and (steps != 1).any()):
        return False
    pairs = zip(axes, before.type.shape, after.type.shape, strict=True)
    return all(old == new or _WITHIN in axis for axis, old, new in pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """The constants of a dequantized tensor, and what its axes stand for."""

    rewriter: Rewriter
    axes: tuple[str, ...]
    codes: Constant
    scales: Constant
    zeros: Constant | None

    def weights(self, rows: int) -> _Weights | None:
        """The constants as a kernel reads them; None where columns are few."""
        extents = dict(zip(self.axes, self.codes.value.type.static_shape, strict=True))
        blocks, block, columns = extents.get(_BLOCK, 1), extents[_WITHIN], extents[_COLUMN]
        if columns < _FEWEST:
            return None
        kind = self.codes.value.type.dtype
        per_byte = 8 // kind.bits
        held = -(-block // per_byte) * per_byte
        if held != block and blocks > 1:
            return None
        middle = 1 << kind.bits - 1 if kind.is_signed and kind.bits < 8 else 0
        unsigned = _UNSIGNED.get(kind, kind)
        order = [self.axes.index(axis) for axis in (_BLOCK, _WITHIN, _COLUMN) if axis in self.axes]

        def codes(array: Array) -> Array:
            ordered: Array = array.transpose(order).reshape(blocks, block, columns)
            if held != block:
                ordered = np.pad(ordered.view(np.uint8), ((0, 0), (0, held - block), (0, 0)))
            return _raised(ordered.view(kind.numpy), kind, middle)

        shape = TensorType(unsigned, (blocks, held, columns))
        key = f"codes of blocks {order} {shape}"
        ordered = self.rewriter.constant(
            derived(shape, (self.codes,), codes, key), f"{self.codes.value.name}_codes"
        )
        scales = self._parameter(self.scales, order, (blocks, columns), 0, "scales")
        zeros, zero = self._zeros(order, (blocks, columns), middle)
        return _Weights(ordered, scales, zeros, zero, rows or blocks * block)

    def _zeros(
        self, order: list[int], shape: tuple[int, int], middle: int
    ) -> tuple[Value | None, int]:
        """The zero points of unsigned codes: constants, or a number where they are all alike."""
        if self.zeros is None:
            return None, middle
        data = self.zeros.made().astype(np.float32)
        first = float(data.flat[0])
        if first.is_integer() and (data == first).all():
            return None, int(first) + middle
        return self._parameter(self.zeros, order, shape, middle, "zeros"), 0

    def _parameter(
        self, constant: Constant, order: list[int], shape: tuple[int, int], middle: int, hint: str
    ) -> Value:
        """Scales or zero points [blocks, columns]; `constant` is as a DequantizeLinear has them."""
        kind = constant.value.type.dtype
        unsigned = _UNSIGNED.get(kind, kind)

        def parameter(array: Array) -> Array:
            ordered: Array = np.ascontiguousarray(array.transpose(order).reshape(shape))
            if middle and kind.is_float:
                return np.asarray(ordered + middle, kind.numpy)
            return _raised(ordered, kind, middle)

        content = derived(
            TensorType(unsigned, shape),
            (constant,),
            parameter,
            f"{hint} of blocks {order} {middle}",
        )
        return self.rewriter.constant(content, f"{constant.value.name}_{hint}")


def _raised(codes: Array, kind: DType, middle: int) -> Array:
    """Integers of less than a byte with `middle` added, unsigned; others, whose middle is 0, as
    they are."""
    if not middle:
        return codes
    mask = np.uint8((1 << kind.bits) - 1)
    return ((codes.view(np.uint8) + np.uint8(middle)) & mask).view(_UNSIGNED[kind].numpy)
