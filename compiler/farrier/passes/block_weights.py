"""The analysis of a weight matrix that a graph dequantizes from constant blocks of integers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from farrier.ir.dim import Extent
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.types import DType, TensorType
from farrier.ops import Product, product_of
from farrier.ops.blocks import UNPACK_BITS
from farrier.ops.conversion import CAST
from farrier.ops.matmul import GEMM
from farrier.ops.quantize import DEQUANTIZE
from farrier.ops.shape import TRANSPOSE
from farrier.ops.slicing import SLICE
from farrier.ops.view import RESHAPE
from farrier.passes.eliminate_dead_code import eliminate_dead_code
from farrier.passes.fold_constants import fold_node, is_foldable
from farrier.passes.rewriting import Replacement, Rewriter, derived

if TYPE_CHECKING:
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[Any]

_FEWEST = 8  # The fewest columns for which a separate kernel is worthwhile: a vector of AVX2.
_UNSIGNED = {DType.I4: DType.U4, DType.I2: DType.U2}
_COLUMN, _BLOCK, _WITHIN = "column", "block", "within"  # The meanings of an axis of weights.

Axis: TypeAlias = tuple[str, ...]  # The meaning of an axis; several if axes were merged.


@dataclasses.dataclass(frozen=True, slots=True)
class BlockWeights:
    """The constants of a weight matrix [rows, columns] that is quantized in blocks of rows: its
    codes (the integers), scales and zero points."""

    codes: Value  # [blocks, block, columns]
    scales: Value  # [blocks, columns], as are the zero points
    zeros: Value | None
    zero: int  # The zero point of all codes if `zeros` is None.
    rows: int


def replace_products(graph: Graph, replaced: Callable[[Node, Rewriter], tuple[Node, ...]]) -> Graph:
    """Return the graph with the nodes that `replaced` returns in place of a node, where it returns
    any. Constant bits are unpacked first, so that `replaced` sees codes."""
    rewriter, count = Rewriter(graph), 0
    for original in graph.nodes:
        node = rewriter.resolve_inputs(original)
        if UNPACK_BITS.matches(node) and is_foldable(node, rewriter):
            fold_node(node, rewriter)
            continue
        nodes = replaced(node, rewriter)
        count += len(nodes)
        for replacement in nodes or (node,):
            rewriter.emit(replacement)
    # Unused nodes are removed before constants are folded, which would dequantize all weights.
    return eliminate_dead_code(rewriter.finish()) if count else rewriter.finish()


def multiplied_weights(node: Node, rewriter: Rewriter) -> BlockWeights | None:
    """Return the quantized weights by which a node multiplies a matrix, or None if it does not."""
    if product_of(node) is not Product.MATRIX or "accumulator" in dict(node.attrs):
        return None
    w, turned = node.inputs[1], False
    assert w is not None
    if GEMM.matches(node):
        factors = node.attr("alpha", 1.0), node.attr("beta", 1.0)
        if factors != (1, 1) or node.attr("transA", 0):
            return None
        turned = bool(node.attr("transB", 0))
    return block_weights(w, turned, rewriter)


def whole_rows(
    x: Value, weights: BlockWeights, replacement: Replacement, rewriter: Rewriter
) -> Value:
    """Return `x` in f32, with its rows padded with zeros to whole blocks of the weights."""
    x = _as_f32(x, "rows", replacement)
    blocks, block, _ = weights.codes.type.static_shape
    whole: Extent = blocks * block
    if whole == weights.rows:
        return x
    pads = np.array([0] * (2 * x.type.rank - 1) + [whole - weights.rows], np.int64)
    kind = TensorType(DType.F32, (*x.type.shape[:-1], whole))
    return replacement.add("Pad", (x, rewriter.constant(pads, "pads")), kind, "whole")


def finished_product(node: Node, product: Value, replacement: Replacement) -> tuple[Node, ...]:
    """Return the nodes that replace a product and end with its value `product` in f32, to which the
    addend of `node` is added, and which is converted to the output's dtype."""
    kind = node.outputs[0].type
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        addend = _as_f32(node.inputs[2], "addend", replacement)
        product = replacement.add("Add", (product, addend), product.type, "sum")
    if kind.dtype is not DType.F32:
        replacement.add("Cast", (product,), kind, "narrow", to=kind.dtype.value)
    return replacement.finish()


def _as_f32(value: Value, hint: str, replacement: Replacement) -> Value:
    if value.type.dtype is DType.F32:
        return value
    wide = TensorType(DType.F32, value.type.shape)
    return replacement.add("Cast", (value,), wide, hint, to="f32")


def block_weights(value: Value, turned: bool, rewriter: Rewriter) -> BlockWeights | None:
    """Return the constants from which a graph dequantizes the matrix `value`, whose axes are [rows,
    columns], or [columns, rows] if `turned` is true. Return None if it is not dequantized from
    constants in blocks."""
    source = source_of(value, rewriter)
    if source is None:
        return None
    (codes, scales, zeros), path = source.constants, source.path
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
    return _Parts(rewriter, axes, codes, scales, zeros).weights(rows)


_MOVES = frozenset(move.name for move in (RESHAPE, TRANSPOSE, SLICE, CAST))


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """The DequantizeLinear node of a tensor, and its constant operands: codes, scales and zero
    points. `path` are the nodes after it that only move or cast elements, the last one first."""

    node: Node
    constants: tuple[Constant, Constant, Constant | None]
    path: list[Node]


def source_of(value: Value | None, rewriter: Rewriter) -> Source | None:
    """Return the DequantizeLinear of constants from which a value derives, or None."""
    path: list[Node] = []
    node = rewriter.producer(value)
    while node is not None and node.op in _MOVES:
        path.append(node)
        node = rewriter.producer(node.inputs[0])
    if not DEQUANTIZE.matches(node):
        return None
    codes, scales, *others = [rewriter.constant_of(operand) for operand in node.inputs]
    if codes is None or scales is None or None in others:
        return None
    zeros = others[0] if others else None
    if zeros is not None:
        is_one = not zeros.value.type.shape and zeros.value.type.dtype.is_integer
        if not is_one and zeros.value.type.shape != scales.value.type.shape:
            return None
    return Source(node, (codes, scales, zeros), path)


def is_quantized(dtype: DType) -> bool:
    """Check whether a dtype is a possible type of quantized codes: an integer of at most 8 bits."""
    return dtype.is_integer and dtype.bits <= 8


def _axes(codes: TensorType, scales: TensorType, matrix: TensorType) -> tuple[str, ...] | None:
    """Return the meaning of each axis of the codes: a block of rows, a row within its block, or a
    column. Return None if the tensor is not quantized by blocks or by columns. The axis within
    blocks is the one along which a scale is shared: its extent in `scales` is 1."""
    if not (is_quantized(codes.dtype) and matrix.is_static):
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
    """Apply the nodes of `path` (the last node first) to the meanings of the axes. Return two
    values: the meanings after all of the nodes, and the extent of the axis of rows (0 if the path
    is empty). Return (None, 0) if a node does more than merge, permute or truncate axes."""
    now: list[Axis] = [(axis,) for axis in axes]
    for node in reversed(path):
        before, after = node.inputs[0], node.outputs[0]
        assert before is not None
        if RESHAPE.matches(node):
            merged = _merged(now, before.type.static_shape, after.type.static_shape)
            if merged is None:
                return None, 0
            now = merged
        elif TRANSPOSE.matches(node):
            order = node.attr("perm") or tuple(reversed(range(len(now))))
            now = [now[axis] for axis in order]
        elif SLICE.matches(node) and not _cuts_rows(now, node, rewriter):
            return None, 0
    if not path:
        end = None
    else:
        end = path[0].outputs[0].type.static_shape
    rows = next((at for at, axis in enumerate(now) if _WITHIN in axis), 0)
    return now, 0 if end is None else end[rows]


def _merged(axes: list[Axis], before: tuple[int, ...], after: tuple[int, ...]) -> list[Axis] | None:
    """Return, for each axis after a Reshape, which of block, row and column it combines; None
    unless the Reshape only merges adjacent axes."""
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
    """Check whether a Slice only removes the padding rows at the end of the last block."""
    before, after = node.inputs[0], node.outputs[0]
    assert before is not None
    pairs = zip(axes, before.type.shape, after.type.shape, strict=True)
    is_of_rows = all(old == new or _WITHIN in axis for axis, old, new in pairs)
    return is_of_rows and drops_ends(node, rewriter)


def drops_ends(node: Node, rewriter: Rewriter) -> bool:
    """Check whether a Slice removes only elements at the ends of axes."""
    starts = rewriter.data(node.inputs[1])
    steps = rewriter.data(node.inputs[4]) if len(node.inputs) > 4 else None
    return starts is not None and not starts.any() and (steps is None or bool((steps == 1).all()))


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """The constants of a dequantized tensor, and the meanings of its axes."""

    rewriter: Rewriter
    axes: tuple[str, ...]
    codes: Constant
    scales: Constant
    zeros: Constant | None

    def weights(self, rows: int) -> BlockWeights | None:
        """Return the constants in the layout that a kernel reads. Return None if the matrix has too
        few columns."""
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
        return BlockWeights(ordered, scales, zeros, zero, rows or blocks * block)

    def _zeros(
        self, order: list[int], shape: tuple[int, int], middle: int
    ) -> tuple[Value | None, int]:
        """Return the zero points for codes that are shifted by `middle` to be unsigned, as a
        pair of a constant and a number: (None, number) if all zero points are equal, else
        (constant, 0)."""
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
        """Return the scales or zero points in the shape [blocks, columns]. `constant` is the
        operand of the DequantizeLinear, with the axes in the order of the codes."""
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
    """Return signed codes of less than 8 bits as unsigned, with `middle` added. Other codes, for
    which `middle` is 0, are returned unchanged."""
    if not middle:
        return codes
    mask = np.uint8((1 << kind.bits) - 1)
    return ((codes.view(np.uint8) + np.uint8(middle)) & mask).view(_UNSIGNED[kind].numpy)
