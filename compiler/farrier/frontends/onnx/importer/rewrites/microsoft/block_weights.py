"""Rewrite operators on weights of a few bits, quantized in blocks, to dequantized matrices and
tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.frontends.builder.node import RawNode
from farrier.frontends.onnx.importer.rewrites.microsoft.parts import Parts
from farrier.frontends.onnx.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.blocks import unpacked
from farrier.ops.operator import normal_axis

_KINDS = {2: DType.U2, 4: DType.U4, 8: DType.U8}  # By the bits of an element.

# The values of MatMulBnb4's 16 codes: 4-bit floats, and the quantiles of a normal distribution
# (Dettmers et al., QLoRA, appendix E). The library bitsandbytes defines both.
_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
_CODES = ((*_FP4, *(-value for value in _FP4)), _NF4)  # The index is quant_type.


def matmul_nbits(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MatMulNBits: the product with weights of a few bits, plus a bias."""
    p = Parts(node, scope)
    if node.attrs.get("weight_prepacked", 0):
        raise NotSupported("weights that are packed for another execution provider")
    if p.known(p.input(1), "weights").size:
        product = p("MatMul", _as_multiplied(p), _nbits_weights(p))
    else:  # Weights without elements stand for a projection that the model omits.
        shape = (*p.shape(p.input(0))[:-1], int(node.attrs["N"]))
        product = p("Expand", p.number(0), p.ints(*shape))
    return p.results(p.sum(product, p.input(5)))


def _nbits_weights(p: Parts) -> str:
    """Return the weights of MatMulNBits as a matrix [K, N], dequantized from blocks [N, K / block,
    block] of the packed constant."""
    if p.input(4):
        return p.array(nbits_matrix(p).astype(p.dtype.numpy))
    rows, columns, block, bits = _sizes(p)
    blocks = -(-rows // block)
    kind = _KINDS[bits]
    packed = p.known(p.input(1), "weights").reshape(columns, blocks, -1)
    codes = p.array(packed)
    if bits < 8:
        codes = p("UnpackBits", codes, to=str(kind))
    scales = p.array(p.known(p.input(2), "scales").reshape(columns, blocks, 1))
    real = p("DequantizeLinear", codes, scales, _nbits_zeros(p), to=str(p.dtype))
    matrix = p.reshape(real, columns, blocks * block)
    if blocks * block != rows:
        matrix = p.cut(matrix, 0, rows, 1)
    return p.transpose(matrix, 1, 0)


def _nbits_zeros(p: Parts) -> str:
    """Return the zero points of MatMulNBits: packed integers by column, or floats. Omitted ones are
    the middle of the range."""
    rows, columns, block, bits = _sizes(p)
    blocks, kind = -(-rows // block), _KINDS[bits]
    if not p.input(3):
        return p.array(np.array(1 << bits - 1, kind.numpy))
    zeros = p.known(p.input(3), "zero points")
    if zeros.dtype == np.uint8:
        zeros = unpacked(zeros.reshape(columns, -1), kind)[:, :blocks]
    return p.array(zeros.reshape(columns, blocks, 1))


def _sizes(p: Parts) -> tuple[int, int, int, int]:
    """Return the sizes K, N, block_size and bits of MatMulNBits."""
    rows, columns, block, bits = (
        int(p.attrs.get(name, 4)) for name in ("K", "N", "block_size", "bits")
    )
    if bits not in _KINDS:
        raise NotSupported(f"weights of {bits} bits")
    return rows, columns, block, bits


def nbits_matrix(p: Parts) -> npt.NDArray[np.float32]:
    """Return the dequantized weights of MatMulNBits in f32, [K, N].

    B[n] has the blocks of column n; row k belongs to block g_idx[k], or to k // block_size without
    g_idx. Omitted zero points are the middle of the range.
    """
    rows, columns, block, bits = _sizes(p)
    blocks = -(-rows // block)
    packed = p.known(p.input(1), "weights").reshape(columns, -1)
    weights = unpacked(packed, _KINDS[bits])[:, :rows].astype(np.float32)
    scales = p.known(p.input(2), "scales").reshape(columns, blocks).astype(np.float32)
    zeros: npt.NDArray[Any] = np.full((columns, blocks), 1 << bits - 1)
    if p.input(3):
        zeros = p.known(p.input(3), "zero points")
        if zeros.dtype == np.uint8:
            zeros = unpacked(zeros.reshape(columns, -1), _KINDS[bits])[:, :blocks]
        zeros = zeros.reshape(columns, blocks)
    chosen = np.arange(rows) // block
    if p.input(4):
        chosen = p.known(p.input(4), "g_idx").reshape(-1)[:rows]
    weights -= zeros.astype(np.float32)[:, chosen]
    weights *= scales[:, chosen]
    return np.ascontiguousarray(weights.T)


def _as_multiplied(p: Parts) -> str:
    """Return the left operand of MatMulNBits as ONNX Runtime quantizes it: with accuracy_level 4,
    each block is rounded to int8 with a scale for which the greatest magnitude is 127."""
    x, block = p.input(0), int(p.attrs["block_size"])
    has_real_zeros = p.input(3) and p.scope.dtype(p.input(3)) is not DType.U8
    is_rounded = int(p.attrs.get("accuracy_level", 0)) == 4 and not has_real_zeros
    if int(p.attrs.get("bits", 4)) == 2:
        # ONNX Runtime has int8 kernels with weights of 2 bits for these blocks only.
        is_rounded = is_rounded and block in (32, 64, 128)
    if not is_rounded or p.input(4):
        return x
    *lead, rows = p.shape(x)
    missing = -number(rows) % block
    wide = p.cast(x, DType.F32)
    if missing:
        wide = p("Pad", wide, p.ints(*(0,) * (2 * len(lead) + 1), missing))
    parts = p.reshape(wide, *lead, -(-number(rows) // block), block)
    high = p("ReduceMax", p("Abs", parts), p.ints(-1), keepdims=1)
    # A block of zeros has no scale; any divisor other than 0 keeps it 0.
    divisor = p("Where", p("Equal", high, p.single(0)), p.single(1), high)
    codes = p("Round", p("Mul", parts, p("Div", p.single(127), divisor)))
    scales = p("Div", divisor, p.single(127))
    codes = p("Cast", codes, to=str(DType.I8))
    rounded = p("DequantizeLinear", codes, scales, to=str(DType.F32))
    rounded = p.reshape(rounded, *lead, number(rows) + missing)
    rounded = p.cut(rounded, 0, rows, len(lead)) if missing else rounded
    return p.cast(rounded, p.dtype)


def matmul_bnb4(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite MatMulBnb4, whose weights are codes of 4 bits; the first code of a byte is in its
    high bits.

    A code is an index into a table of fractions of the greatest magnitude in its block. Blocks
    divide the flattened [N, K].
    """
    p = Parts(node, scope)
    kind = int(node.attrs["quant_type"])
    if kind not in (0, 1):
        raise Mismatch(f"quant_type {kind}")
    rows, columns, block = (int(node.attrs[name]) for name in ("K", "N", "block_size"))
    packed = p.known(p.input(1), "weights").reshape(-1)
    codes = np.stack((packed >> 4, packed & 15), axis=-1).reshape(-1)[: columns * rows]
    greatest = p.known(p.input(2), "scales").reshape(-1).astype(np.float32)
    real = np.array(_CODES[kind], np.float32)[codes]
    real *= greatest[np.arange(codes.size) // block]
    matrix = real.reshape(columns, rows)
    if node.attrs.get("transB", 1):
        matrix = matrix.T
    return p.results(p("MatMul", p.input(0), p.array(matrix.astype(p.dtype.numpy))))


@dataclasses.dataclass(frozen=True, slots=True)
class _Table:
    """The table of GatherBlockQuantized: its elements, scales, and zero points ("" if all are
    zero). Rows are gathered along the axis `gathered`. Each scale applies to `block` consecutive
    elements along `axis`; a `block` of 0 means a single scale for all elements."""

    data: str
    scales: str
    zeros: str
    gathered: int
    axis: int
    block: int


def gather_block_quantized(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rewrite GatherBlockQuantized: gather rows of a table quantized in blocks, and dequantize
    them. The row for an index out of range is zeros."""
    p = Parts(node, scope)
    rank = len(scope.shape(p.input(0)))
    gathered = normal_axis(int(node.attrs.get("gather_axis", 0)), rank)
    axis = normal_axis(int(node.attrs.get("quantize_axis", 1)), rank)
    if gathered == axis:
        raise Mismatch("gather_axis and quantize_axis are one")
    block = int(node.attrs.get("block_size", 128))
    table = _Table(p.input(0), p.input(2), p.input(3), gathered, axis, block)
    if scope.dtype(table.data) is DType.U8:
        table = _of_bytes(p, table, int(node.attrs.get("bits", 4)))
    return p.results(_within(p, table, _rows(p, table)))


def _of_bytes(p: Parts, table: _Table, bits: int) -> _Table:
    """Return the table with the bytes of its elements and zero points unpacked to elements of
    `bits` bits, along the last axis. Omitted zero points are the middle of the range."""
    if bits not in _KINDS:
        raise NotSupported(f"a table of {bits} bits")
    kind = _KINDS[bits]
    data, zeros = table.data, table.zeros
    if bits < 8:
        data = p("UnpackBits", p.array(p.known(data, "a packed table")), to=str(kind))
    if not zeros:
        zeros = p.array(np.array(1 << bits - 1, kind.numpy))
    elif bits < 8:
        last = number(p.shape(table.scales)[-1])
        points = unpacked(p.known(zeros, "packed zero points"), kind)[..., :last]
        zeros = p.array(points)
    return dataclasses.replace(table, data=data, zeros=zeros)


def _rows(p: Parts, table: _Table) -> str:
    """Return the gathered rows, dequantized."""
    indices, axis, block = p.input(1), table.axis, table.block
    if axis > table.gathered:  # The axes of the indices come before this axis.
        axis += len(p.shape(indices)) - 1
    rows = p("Gather", table.data, indices, axis=table.gathered)
    parameters = [
        name if _is_shared(p, name, table) else p("Gather", name, indices, axis=table.gathered)
        for name in filter(None, (table.scales, table.zeros))
    ]
    to = str(p.scope.dtype(table.scales))
    shape = p.shape(rows)
    if not block:
        return p("DequantizeLinear", rows, *parameters, to=to)
    length = number(shape[axis])
    if length % block:
        of_each = p.array(np.arange(length) // block)
        parameters = [
            p("Gather", name, of_each, axis=axis) if p.shape(name) else name for name in parameters
        ]
        return p("DequantizeLinear", rows, *parameters, to=to)
    parts = p.reshape(rows, *shape[:axis], length // block, block, *shape[axis + 1 :])
    parameters = [p.unsqueeze(name, axis + 1) if p.shape(name) else name for name in parameters]
    return p.reshape(p("DequantizeLinear", parts, *parameters, to=to), *shape)


def _is_shared(p: Parts, name: str, table: _Table) -> bool:
    """Check whether the scales or zero points `name` are the same for all rows of the table, so
    that they need not be gathered."""
    shape, rows = p.shape(name), p.shape(table.data)[table.gathered]
    return not shape or (shape[table.gathered] == 1 and rows != 1)


def _within(p: Parts, table: _Table, rows: str) -> str:
    """Return the gathered `rows`, with zeros in place of the rows whose index is out of range."""
    indices, count = p("Cast", p.input(1), to="i64"), number(p.shape(table.data)[table.gathered])
    constant = p.scope.data(p.input(1))
    if constant is not None and ((constant >= -count) & (constant < count)).all():
        return rows
    is_within = p("And", p("Less", indices, p.whole(count)),
                  p("GreaterOrEqual", indices, p.whole(-count)))  # fmt: skip
    behind = len(p.shape(table.data)) - table.gathered - 1
    is_within = p.reshape(is_within, *p.shape(indices), *(1,) * behind)
    zero = p.array(np.zeros((), p.scope.dtype(table.scales).numpy))
    return p("Where", is_within, rows, zero)


RULES: dict[str, Upgrade] = {
    "MatMulNBits": matmul_nbits,
    "MatMulBnb4": matmul_bnb4,
    "GatherBlockQuantized": gather_block_quantized,
}
