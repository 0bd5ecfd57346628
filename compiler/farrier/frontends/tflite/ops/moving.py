"""Rules of slicing, joining and padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from farrier.frontends.builder import Builder
from farrier.frontends.builder.images import ImageBuilder, first_axes
from farrier.frontends.tflite.call import Call, Rule, as_index
from farrier.frontends.tflite.ops.activations import activated
from farrier.frontends.tflite.schema import INT8, INT16, UINT8
from farrier.ops import Mismatch, NotSupported
from farrier.ops.operator import normal_axis

_LAST = np.iinfo(np.int64).max  # An end beyond every axis, as Slice takes it.
_MODES = {0: "reflect", 1: "edge"}


def _concatenation(call: Call, b: ImageBuilder) -> str:
    values = call.values()
    rank = len(b.shape(values[0]))
    axis = normal_axis(int(call.option("axis")), rank)
    are_images = rank > 2 and all(map(b.has_channels_first, values))
    if are_images:
        values, axis = [b.channels_first(x) for x in values], first_axes(rank).index(axis)
    joined = values[0] if len(values) == 1 else b.add("Concat", *values, axis=axis)
    joined = activated(b, joined, call.option("activation"))
    return b.channels_last(joined) if are_images else joined


def _pack(call: Call, b: Builder) -> str:
    values = call.values()
    axis = normal_axis(int(call.option("axis")), len(b.shape(values[0])) + 1)
    rows = [b.add("Unsqueeze", value, [axis]) for value in values]
    return rows[0] if len(rows) == 1 else b.add("Concat", *rows, axis=axis)


def _unpack(call: Call, b: Builder) -> Sequence[str]:
    x = call.value(0)
    axis = normal_axis(int(call.option("axis")), len(b.shape(x)))
    return [
        b.add("Gather", x, b.constant(np.array(place)), axis=axis)
        for place in range(len(call.outputs))
    ]


def _split(call: Call, b: Builder) -> Sequence[str]:
    """Convert SPLIT, whose operands are the axis and the tensor, into equal parts."""
    (axis,) = call.ints(0)
    return _parted(call, b, call.value(1), axis, None)


def _split_v(call: Call, b: Builder) -> Sequence[str]:
    """Convert SPLIT_V, whose operands are the tensor, the lengths and the axis."""
    (axis,) = call.ints(2)
    return _parted(call, b, call.value(0), axis, call.ints(1))


def _parted(call: Call, b: Builder, x: str, axis: int, lengths: list[int] | None) -> Sequence[str]:
    axis, count = normal_axis(axis, len(b.shape(x))), len(call.outputs)
    whole = b.shape(x)[axis]
    if lengths is None:
        starts = [whole * place // count for place in range(count + 1)]
    else:
        rest = whole - sum(length for length in lengths if length >= 0)
        filled = [rest if length < 0 else length for length in lengths]
        starts = [sum(filled[:place]) for place in range(count + 1)]
    pairs = itertools.pairwise(starts)
    return [b.add("Slice", x, [low], [high], [axis]) for low, high in pairs]


def _slice(call: Call, b: Builder) -> str:
    """Convert SLICE, whose operands are starts and lengths; a length of -1 extends to the end."""
    x, begins = call.value(0), as_index(b, call.value(1))
    rank = len(b.shape(x))
    lengths = b.data(call.value(2))
    if lengths is None:
        ends = b.add("Add", begins, as_index(b, call.value(2)))
        return b.add("Slice", x, begins, ends, list(range(rank)))
    starts = [b.add("Gather", begins, b.constant(np.array([axis])), axis=0) for axis in range(rank)]
    for axis in range(rank):
        length = lengths.reshape(-1)[axis]
        is_rest = isinstance(length, np.integer) and length < 0
        end = [_LAST] if is_rest else b.add("Add", starts[axis], [length])
        x = b.add("Slice", x, starts[axis], end, [axis])
    return x


def _strided_slice(call: Call, b: Builder) -> str:
    """Convert STRIDED_SLICE; bit i of each mask applies to entry i of the operands."""
    x = call.value(0)
    masks = {
        name: int(call.option(f"{name}_mask"))
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    bounds = [as_index(b, call.value(position)) for position in (1, 2)]
    strides = call.ints(3)
    axis, entries = 0, len(strides)
    rank = len(b.shape(x))
    squeezed: list[int] = []
    inserted: list[int] = []
    place = 0  # In the result, before axes are squeezed.
    for entry in range(entries):
        bit = 1 << entry
        if masks["ellipsis"] & bit:
            later = range(entry + 1, entries)
            skipped = rank - axis - sum(not masks["new_axis"] & (1 << each) for each in later)
            axis, place = axis + skipped, place + skipped
        elif masks["new_axis"] & bit:
            inserted.append(place)
            place += 1
        else:
            if axis >= rank:
                raise Mismatch(f"it slices {axis + 1} axes of {rank}")
            ends = [_entry(b, bound, entry) for bound in bounds]
            if masks["shrink_axis"] & bit:
                squeezed.append(place)
                x = _taken(b, x, ends[0], axis)
            else:
                x = _stepped(b, x, ends, strides[entry], axis, masks, bit, call)
            axis, place = axis + 1, place + 1
    if inserted:
        x = b.add("Unsqueeze", x, inserted)
    return b.add("Squeeze", x, squeezed) if squeezed else x


def _entry(b: Builder, vector: str, entry: int) -> str:
    return b.add("Gather", vector, b.constant(np.array([entry])), axis=0)


def _taken(b: Builder, x: str, position: str, axis: int) -> str:
    """Return the slice at a position along an axis, without that axis. A negative position counts
    from the end."""
    return b.add("Gather", x, position, axis=axis)


def _stepped(
    b: Builder,
    x: str,
    ends: list[str],
    stride: int,
    axis: int,
    masks: dict[str, int],
    bit: int,
    call: Call,
) -> str:
    if not stride:
        raise Mismatch("its stride is 0")
    begin, end = ends
    if call.option("offset"):
        end = b.add("Add", begin, end)
    open_begin, open_end = masks["begin"] & bit, masks["end"] & bit
    if open_begin and open_end and stride == 1:
        return x
    first = [0 if stride > 0 else _LAST] if open_begin else begin
    last = [_LAST if stride > 0 else -_LAST] if open_end else end
    return b.add("Slice", x, first, last, [axis], [stride])


def _pad(call: Call, b: ImageBuilder) -> str:
    """Convert PAD and PADV2: pad with the third operand, or with zero, which for quantized tensors
    is the zero point."""
    x = call.value(0)
    value = call.value(2) if call.has(2) else _zero(call, b, x)
    if not b.has_channels_first(x):
        return b.add("Pad", x, _amounts(call, b), value, mode="constant")
    order = b.constant(np.array(first_axes(len(b.shape(x)))))
    amounts = b.add("Gather", _amount_pairs(call, b), order, axis=1)
    amounts = b.add("Reshape", amounts, [-1])
    padded = b.add("Pad", b.channels_first(x), amounts, value, mode="constant")
    return b.channels_last(padded)


def _zero(call: Call, b: Builder, x: str) -> str:
    tensor = call.tensor(0)
    is_quantized = tensor.quantization is not None and tensor.type in (INT8, UINT8, INT16)
    zero = tensor.quantization.zero if is_quantized and tensor.quantization else 0
    return b.constant(np.array(zero, b.dtype(x).numpy))


def _amounts(call: Call, b: Builder) -> str:
    """Return the padding, [rank, 2] in TFLite, as Pad's operand: all amounts before, then all
    amounts after."""
    return b.add("Reshape", _amount_pairs(call, b), [-1])


def _amount_pairs(call: Call, b: Builder) -> str:
    """Return the padding as [2, rank]: amounts before and after each axis."""
    return b.add("Transpose", as_index(b, call.value(1)), perm=(1, 0))


def _mirror(call: Call, b: Builder) -> str:
    """Convert MIRROR_PAD: REFLECT does not repeat the edge, and SYMMETRIC does."""
    x, mode = call.value(0), call.option("mode")
    if mode == 0:
        return b.add("Pad", x, _amounts(call, b), mode="reflect")
    if mode != 1:
        raise NotSupported(f"the mode {mode} of a mirrored padding")
    for axis, (before, after) in enumerate(np.reshape(call.ints(1), (-1, 2)).tolist()):
        parts = [x]
        if before:
            parts.insert(0, b.add("Slice", x, [before - 1], [-_LAST], [axis], [-1]))
        if after:
            parts.append(b.add("Slice", x, [-1], [-1 - after], [axis], [-1]))
        x = x if len(parts) == 1 else b.add("Concat", *parts, axis=axis)
    return x


def _tile(call: Call, b: Builder) -> str:
    return b.add("Tile", call.value(0), as_index(b, call.value(1)))


def _reverse(call: Call, b: Builder) -> str:
    x = call.value(0)
    for axis in call.ints(1):
        x = b.add("Slice", x, [-1], [-_LAST], [axis], [-1])
    return x


def _fill(call: Call, b: Builder) -> str:
    return b.add("Expand", call.value(1), as_index(b, call.value(0)))


def _space_to_batch(call: Call, b: Builder) -> str:
    """Convert SPACE_TO_BATCH_ND of an image: the positions within a spatial block become images of
    the batch."""
    blocks = call.ints(1)
    pads = np.reshape(call.ints(2), (-1, 2))
    x = call.value(0)
    rank, count = len(b.shape(x)), len(blocks)
    befores = [0, *(int(pair[0]) for pair in pads), *(0,) * (rank - 1 - count)]
    afters = [0, *(int(pair[1]) for pair in pads), *(0,) * (rank - 1 - count)]
    x = b.add("Pad", x, [*befores, *afters], _zero(call, b, x), mode="constant")
    batch, *extents = b.shape(x)
    split = [batch]
    for extent, block in zip(extents, blocks, strict=False):
        split += [extent // block, block]
    x = b.add("Reshape", x, [*split, *extents[count:]])
    places = range(count)
    perm = (
        *(2 * place + 2 for place in places),
        0,
        *(2 * place + 1 for place in places),
        *range(2 * count + 1, rank + count),
    )
    x = b.add("Transpose", x, perm=perm)
    sizes = [extent // block for extent, block in zip(extents, blocks, strict=False)]
    return b.add("Reshape", x, [batch * int(np.prod(blocks)), *sizes, *extents[count:]])


def _batch_to_space(call: Call, b: Builder) -> str:
    """Convert BATCH_TO_SPACE_ND: the inverse of SPACE_TO_BATCH_ND, followed by cropping."""
    blocks, crops = call.ints(1), np.reshape(call.ints(2), (-1, 2)).tolist()
    x = call.value(0)
    batch, *extents = b.shape(x)
    rank, count, factor = len(extents) + 1, len(blocks), int(np.prod(blocks))
    x = b.add("Reshape", x, [*blocks, batch // factor, *extents])
    perm = [count]
    for place in range(count):
        perm += [count + 1 + place, place]
    x = b.add("Transpose", x, perm=(*perm, *range(2 * count + 1, rank + count)))
    sizes = [extent * block for extent, block in zip(extents, blocks, strict=False)]
    x = b.add("Reshape", x, [batch // factor, *sizes, *extents[count:]])
    for place, (before, after) in enumerate(crops):
        if before or after:
            x = b.add("Slice", x, [before], [sizes[place] - after], [place + 1])
    return x


RULES: dict[str, Rule] = {
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "CONCATENATION": _concatenation,
    "FILL": _fill,
    "MIRROR_PAD": _mirror,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "REVERSE_V2": _reverse,
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "STRIDED_SLICE": _strided_slice,
    "TILE": _tile,
    "UNPACK": _unpack,
}
