"""Rules of conversions from other representations: quantized, half precision, sparse."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.schema import DTYPES, INT4, Array, Quantization, Tensor
from farrier.ops import Mismatch, NotSupported


def _dequantize(call: Call, b: Builder) -> str:
    """Convert DEQUANTIZE: half precision to f32, or integers q to (q − zero point) · scale."""
    x, tensor = call.value(0), call.tensor(0)
    if DTYPES[tensor.type].is_float:
        return b.add("Cast", x, to="f32")
    if tensor.quantization is None:
        raise Mismatch("it dequantizes a tensor without scales")
    return dequantized(b, x, tensor.quantization, len(tensor.shape))


def dequantized(b: Builder, x: str, quantization: Quantization, rank: int) -> str:
    """Return the real numbers that quantized integers represent."""
    shape = [-1 if axis == quantization.axis else 1 for axis in range(rank)]
    shape = shape if quantization.is_per_axis else []
    zero = quantization.zero_point.astype(b.dtype(x).numpy).reshape(shape)
    scale = b.constant(quantization.scale.astype(np.float32).reshape(shape))
    zeros = [b.constant(zero)] if zero.any() else []
    return b.add("DequantizeLinear", x, scale, *zeros, to="f32")


def _densify(call: Call, b: Builder) -> str:
    """Convert DENSIFY: a sparse constant becomes a dense one."""
    tensor = call.tensor(0)
    if tensor.sparsity is None:
        return call.value(0)
    if tensor.data is None or tensor.type == INT4:
        raise NotSupported("a sparse tensor that is not a constant of whole bytes")
    return b.constant(dense(tensor))


def dense(tensor: Tensor) -> Array:
    """Return a sparse constant as a dense array.

    The layout has levels: first one for each dimension of the tensor, then one for each dimension
    of its blocks. `order` names the dimension of each level, and `block_map` names the dimension of
    the tensor that each block dimension divides. A dense level has all indices; a compressed level
    has a list of indices for each entry of the level above.
    """
    sparsity, shape = tensor.sparsity, tensor.shape
    assert sparsity is not None
    assert tensor.data is not None
    rank, blocks = len(shape), sparsity.block_map
    order, levels = sparsity.order, sparsity.dimensions
    is_order = sorted(order) == list(range(rank + len(blocks)))
    if not is_order or len(levels) != len(order) or any(not 0 <= d < rank for d in blocks):
        raise Mismatch(f"its sparse layout has the order {order} and blocks along {blocks}")
    values = np.frombuffer(tensor.data, DTYPES[tensor.type].numpy)
    nodes = np.zeros(1, np.int64)  # The entries' positions in the level above.
    places: list[Array] = []  # The entries' indices along each level.
    for level in levels:
        if level.segments is None or level.indices is None:
            repeated, index, nodes = _dense_level(nodes, level.dense_size, values.size)
        else:
            repeated, index, nodes = _compressed_level(nodes, level.segments, level.indices)
        places = [place[repeated] for place in places] + [index]
    if nodes.size != values.size:
        raise Mismatch(f"its sparse layout has {nodes.size} entries, and its buffer {values.size}")
    by_dimension = dict(zip(order, places, strict=True))
    coordinates = [by_dimension[axis] for axis in range(rank)]
    for number, axis in enumerate(blocks):
        size = levels[order.index(rank + number)].dense_size
        coordinates[axis] = coordinates[axis] * size + by_dimension[rank + number]
    for axis, coordinate in enumerate(coordinates):
        if coordinate.size and not 0 <= coordinate.min() <= coordinate.max() < shape[axis]:
            raise Mismatch(f"its sparse layout leads outside of {shape}")
    whole = np.zeros(shape, values.dtype)
    whole[tuple(coordinates)] = values
    return whole


def _dense_level(nodes: Array, size: int, most: int) -> tuple[Array, Array, Array]:
    """Return three arrays with an element for each entry of a dense level of `size` indices: the
    number of its entry in the level above, its index, and its position, which is (position of the
    entry above) · size + index. `nodes` are the positions of the entries in the level above. Raises
    Mismatch for more than `most` entries."""
    if size < 0 or nodes.size * size > most:
        raise Mismatch(f"a level of its sparse layout has {nodes.size} × {size} entries")
    index = np.tile(np.arange(size), nodes.size)
    repeated = np.repeat(np.arange(nodes.size), size)
    return repeated, index, nodes[repeated] * size + index


def _compressed_level(nodes: Array, segments: Array, indices: Array) -> tuple[Array, Array, Array]:
    """Return three arrays with an element for each entry of a compressed level: the number of its
    entry in the level above, its index, and its position in `indices`. The entry above at position
    n has the entries from `segments[n]` to `segments[n + 1]`. `nodes` are the positions of the
    entries in the level above."""
    if nodes.size and nodes.max() + 1 >= segments.size:
        raise Mismatch("its sparse layout lacks segments")
    starts, ends = segments[nodes], segments[nodes + 1]
    counts = ends - starts
    is_outside = (counts < 0).any() or (starts < 0).any() or (ends > indices.size).any()
    if is_outside or counts.sum() > indices.size:
        raise Mismatch("the segments of its sparse layout do not fit its indices")
    repeated = np.repeat(np.arange(nodes.size), counts)
    first = np.cumsum(counts) - counts
    positions = np.arange(counts.sum()) - first[repeated] + starts[repeated]
    return repeated, indices[positions], positions


RULES: dict[str, Rule] = {"DENSIFY": _densify, "DEQUANTIZE": _dequantize}
