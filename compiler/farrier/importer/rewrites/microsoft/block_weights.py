"""Weights of a few bits, quantized in blocks → matrices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from farrier.importer.raw import RawNode
from farrier.importer.rewrites.quantized import dequantize
from farrier.importer.scope import ImportScope, Upgrade
from farrier.ir.dim import number
from farrier.ir.types import DType
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis


def matmul_nbits(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """The product with weights of a few bits: B[n] holds the blocks of column n, packed, the first
    element in the lowest bits; without zero points these are half of the range."""
    attrs = node.attrs
    rows, columns, block = (int(attrs[name]) for name in ("K", "N", "block_size"))
    bits = int(attrs.get("bits", 4))
    packed, scales = scope.data(node.inputs[1]), scope.data(node.inputs[2])
    if packed is None or scales is None or node.input(4):
        raise NotSupported("MatMulNBits of weights computed at run time, or with g_idx")
    if bits not in (2, 4, 8):
        raise NotSupported(f"weights of {bits} bits")
    blocks = -(-rows // block)
    weights = _unpacked(packed.reshape(columns, -1), bits)[:, : blocks * block]
    zeros = np.full((columns, blocks), 1 << bits - 1, np.float32)
    if node.input(3):
        given = scope.data(node.input(3))
        if given is None:
            raise NotSupported("zero points computed at run time")
        if given.dtype == np.uint8:
            given = _unpacked(given.reshape(columns, -1), bits)[:, :blocks]
        zeros = given.reshape(columns, blocks).astype(np.float32)
    real = weights.reshape(columns, blocks, block).astype(np.float32) - zeros[..., None]
    real *= scales.reshape(columns, blocks, 1).astype(np.float32)
    dtype = scope.dtype(node.inputs[0])
    matrix = real.reshape(columns, -1)[:, :rows].T.astype(dtype.numpy)
    product = scope.add("MatMul", node.inputs[0], scope.constant(np.ascontiguousarray(matrix)))
    if node.input(5):
        return [RawNode("Add", [product, node.input(5)], node.outputs, {}, node.origin)]
    return [RawNode("Identity", [product], node.outputs, {}, node.origin)]


def _unpacked(packed: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """The elements of each row of bytes, the first in the lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


def gather_block_quantized(node: RawNode, opset: int, scope: ImportScope) -> list[RawNode]:
    """Rows of a table quantized in blocks, as floats."""
    data, indices, scales = node.inputs[:3]
    zeros, attrs = node.input(3), node.attrs
    rank = len(scope.shape(data))
    gathered = normal_axis(int(attrs.get("gather_axis", 0)), rank)
    axis = normal_axis(int(attrs.get("quantize_axis", 1)), rank)
    block = int(attrs.get("block_size", 128))
    if gathered == axis:
        raise Mismatch("gather_axis and quantize_axis are one")
    if scope.dtype(data) is DType.U8 and attrs.get("bits", 4) == 4:
        table = scope.data(data)
        points = scope.data(zeros) if zeros else None
        if table is None or axis != rank - 1 or (zeros and points is None):
            raise NotSupported(
                "packed bytes that are computed at run time, or not along the last axis"
            )
        data = scope.constant(_unpacked(table, 4).astype(DType.U4.numpy))
        count = number(scope.shape(scales)[-1])
        if points is None:
            points = np.full([number(n) for n in scope.shape(scales)], 8)
        else:
            points = _unpacked(points, 4)[..., :count]
        zeros = scope.constant(points.astype(DType.U4.numpy))
    rows, parameters = scope.add("Gather", data, indices, axis=gathered), [scales]
    parameters += [zeros] if zeros else []
    parameters = [scope.add("Gather", name, indices, axis=gathered) for name in parameters]
    moved = axis + len(scope.shape(indices)) - 1 if axis > gathered else axis
    made = RawNode(
        "DequantizeLinear",
        [rows, *parameters],
        node.outputs,
        {"axis": moved, "block_size": block},
        node.origin,
    )
    return dequantize(made, opset, scope)


RULES: dict[str, Upgrade] = {
    "MatMulNBits": matmul_nbits,
    "GatherBlockQuantized": gather_block_quantized,
}
