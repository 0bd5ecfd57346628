"""Nodes that move elements, and nodes that choose among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from draft import ALL_FLOATS, ANY, DOUBLE, FLOAT, FLOATS, INT64, NUMBERS, WHOLE, Call, Draft, Tensor


def transpose(d: Draft) -> Call:
    x = d.pick(ANY, least=1)
    perm = list(range(x.rank))
    d.rng.shuffle(perm)
    return Call("Transpose", [x], attrs={"perm": perm}, exact=True)


def _ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def reshape(d: Draft) -> Call:
    x = d.pick(ANY)
    kind = d.choice(("Reshape", "Flatten", "Unsqueeze", "Squeeze", "merge", "zeros"))
    if kind == "Flatten" and x.rank:
        return Call("Flatten", [x], attrs={"axis": d.between(0, x.rank)}, exact=True)
    if kind == "Unsqueeze" and x.rank < 5:
        return Call("Unsqueeze", [x, _ints(d.between(0, x.rank))], exact=True)
    ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    if kind == "Squeeze" and ones:
        return Call("Squeeze", [x, _ints(d.choice(ones))], exact=True)
    if kind == "merge" and x.rank >= 2 and 0 not in x.shape:
        at = d.rng.randrange(x.rank - 1)
        return Call("Reshape", [x, _ints(*x.shape[:at], -1, *x.shape[at + 2 :])], exact=True)
    if kind == "zeros" and x.rank:
        kept = d.between(0, x.rank - 1)
        rest = int(np.prod(x.shape[kept:], dtype=np.int64))
        tail = (-1,) if 0 not in x.shape else (rest,)
        return Call("Reshape", [x, _ints(*(0,) * kept, *tail)], exact=True)
    left, shape = int(np.prod(x.shape, dtype=np.int64)), []
    while left > 1 and len(shape) < 4:
        shape.append(d.choice([f for f in range(1, left + 1) if left % f == 0]))
        left //= shape[-1]
    return Call("Reshape", [x, _ints(*shape, left)], attrs={"allowzero": int(not left)}, exact=True)


def slice_(d: Draft) -> Call:
    x = d.pick(ANY, least=1)
    axes = d.axes(x)
    starts, ends, steps = [], [], []
    for axis in axes:
        extent, step = x.shape[axis], d.choice((1, 1, 2, 3, -1, -1, -2))
        first, last = sorted(d.between(-extent - 2, extent + 2) for _ in range(2))
        if d.rng.random() < 0.7:  # Most slices are not empty.
            low, high = sorted(d.between(0, max(extent - 1, 0)) for _ in range(2))
            first, last = (low, high + 1) if step > 0 else (high, low - 1 if low else -(2**31))
            if step > 0 and d.rng.random() < 0.5:
                first, last = first - extent, last - extent if last < extent else 2**31 - 1
        starts.append(first)
        ends.append(last)
        steps.append(step)
    bounds = (_ints(*values) for values in (starts, ends, axes, steps))
    return Call("Slice", [x, *bounds], exact=True)


def concat(d: Draft) -> Call:
    x = d.pick(ANY, least=1)
    axis = d.axis(x)
    parts: list[Any] = [x]
    for _ in range(d.between(0, 3)):
        shape = list(x.shape)
        shape[axis] = d.choice((1, 2, 3, 8, 16, shape[axis]))
        parts.append(d.other(shape, x.dtype))
    d.rng.shuffle(parts)
    return Call("Concat", parts, attrs={"axis": axis}, exact=True)


def split(d: Draft) -> Call:
    x = d.pick(ANY, least=1)
    axis = d.axis(x)
    extent = x.shape[axis]
    if d.rng.random() < 0.4 and extent:
        count = d.between(1, min(extent, 4))
        attrs = {"axis": axis, "num_outputs": count}
        return Call("Split", [x], outputs=count, attrs=attrs, exact=True)
    cuts = sorted(d.choice(range(extent + 1)) for _ in range(d.between(1, 2)))
    if not d.has_empty:
        cuts = sorted(d.rng.sample(range(1, extent), min(len(cuts), extent - 1)))
    sizes = np.diff([0, *cuts, extent]).astype(np.int64)
    return Call("Split", [x, sizes], outputs=len(sizes), attrs={"axis": axis}, exact=True)


def gated(d: Draft) -> Call:
    """Half of the channels times the sigmoid of the others."""
    x = d.pick(FLOATS, least=2)
    even = [axis for axis, extent in enumerate(x.shape) if extent and extent % 2 == 0]
    axis = d.choice(even)
    attrs = {"axis": axis, "num_outputs": 2}
    kept, gate = d.add(Call("Split", [x], outputs=2, attrs=attrs, exact=True))
    (gate,) = d.add(Call("Sigmoid", [gate], magnitude=1.0))
    return Call("Mul", [kept, gate])


def pad(d: Draft) -> Call:
    mode = d.choice(("constant", "constant", "reflect", "edge", "wrap"))
    if mode == "wrap" and d.opset < 19:
        mode = "edge"
    x = d.pick((*ALL_FLOATS, INT64), least=1)
    most = [min(3, max(e - 1, 0)) if mode in ("reflect", "wrap") else 3 for e in x.shape]
    least = [-min(1, max(e - 1, 0)) if mode == "constant" else 0 for e in x.shape]
    if 0 in x.shape and mode != "constant":
        most = [0 for _ in x.shape]
    pads = [d.between(lo, hi) for _ in range(2) for lo, hi in zip(least, most, strict=True)]
    return Call("Pad", [x, _ints(*pads)], attrs={"mode": mode}, exact=True)


def pad_to_multiple(d: Draft) -> Call:
    """The last axis padded at its end up to a multiple, as windows of images need it."""
    x = d.pick(FLOATS, least=1)
    unit = d.choice((2, 3, 4, 8))
    extent = x.shape[-1]
    (size,) = d.add(Call("Shape", [x], attrs={"start": -1}, exact=True))
    (less,) = d.add(Call("Neg", [size], exact=True))
    (missing,) = d.add(Call("Mod", [less, _ints(unit)], exact=True))
    front = _ints(*(0,) * (2 * x.rank - 1))
    attrs, shapes = {"axis": 0}, [(2 * x.rank,)]
    (pads,) = d.add(Call("Concat", [front, missing], attrs=attrs, exact=True, shapes=shapes))
    shape = (*x.shape[:-1], extent + -extent % unit)
    return Call("Pad", [x, pads], exact=True, shapes=[shape], magnitude=x.magnitude)


def rows(d: Draft) -> Call:
    """Return a Reshape to a computed Shape: the leading axes stay, the others are merged."""
    x = d.pick(ANY, least=2)
    kept = d.between(1, x.rank - 1)
    (lead,) = d.add(Call("Shape", [x], attrs={"end": kept}, exact=True))
    rest = int(np.prod(x.shape[kept:], dtype=np.int64))
    tail = -1 if 0 not in x.shape else rest
    attrs, shapes = {"axis": 0}, [(kept + 1,)]
    (shape,) = d.add(Call("Concat", [lead, _ints(tail)], attrs=attrs, exact=True, shapes=shapes))
    whole = [(*x.shape[:kept], rest)]
    return Call("Reshape", [x, shape], exact=True, shapes=whole, magnitude=x.magnitude)


def half(d: Draft) -> Call:
    """The first half of an axis, by its Shape."""
    x = d.pick(ANY, least=1)
    axis = d.rng.randrange(x.rank)
    attrs = {"start": axis, "end": axis + 1}
    (size,) = d.add(Call("Shape", [x], attrs=attrs, exact=True))
    (end,) = d.add(Call("Div", [size, _ints(2)], exact=True))
    shape = (*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])
    operands = [x, _ints(0), end, _ints(axis)]
    return Call("Slice", operands, exact=True, shapes=[shape], magnitude=x.magnitude)


def expand(d: Draft) -> Call:
    x = d.pick(ANY)
    if d.rng.random() < 0.5 and x.rank:
        return Call("Tile", [x, _ints(*(d.between(1, 3) for _ in x.shape))], exact=True)
    shape = [d.choice((1, 3, 5)) if e == 1 else e for e in x.shape]
    return Call("Expand", [x, _ints(d.choice((1, 2)), *shape)], exact=True)


def gather(d: Draft) -> Call:
    x = d.pick(ANY, least=1)
    axis = d.axis(x)
    extent = x.shape[axis]
    kind = d.choice(("Gather", "Gather", "GatherElements", "GatherND"))
    if kind == "Gather":
        shape = d.shape(d.choice((0, 1, 2)))
        indices = d.arrays.integers(-extent, extent, shape)
        return Call(kind, [x, indices], attrs={"axis": axis}, exact=True)
    if kind == "GatherElements":
        shape = tuple(d.between(1, e) for e in x.shape)
        indices = d.arrays.integers(-extent, extent, shape)
        return Call(kind, [x, indices], attrs={"axis": axis}, exact=True)
    depth = d.between(1, x.rank)
    picks = [d.arrays.integers(0, e, (3, 5)) for e in x.shape[:depth]]
    return Call("GatherND", [x, np.stack(picks, -1)], exact=True)


def scatter(d: Draft) -> Call:
    x = d.pick((FLOAT, INT64), least=1, most=100.0)
    reduction = d.choice(("none", "add", "max", "min"))
    if d.rng.random() < 0.5:
        depth, count = d.between(1, x.rank), d.between(1, 3)
        where = np.stack([d.arrays.integers(0, e, count) for e in x.shape[:depth]], -1)
        if reduction == "none":
            where = where[:1]
        updates = d.array((len(where), *x.shape[depth:]), x.dtype)
        attrs = {"reduction": reduction}
        return Call("ScatterND", [x, where, updates], attrs=attrs, exact=True)
    axis, shape = d.rng.randrange(x.rank), tuple(d.between(1, e) for e in x.shape)
    indices = np.argsort(d.arrays.random(shape), axis=axis)
    updates = d.array(shape, x.dtype)
    attrs = {"axis": axis, "reduction": reduction}
    return Call("ScatterElements", [x, indices, updates], attrs=attrs, exact=True)


def blocks(d: Draft) -> Call:
    block, dtype = d.choice((2, 3)), d.choice((FLOAT, FLOAT, *WHOLE))
    if d.rng.random() < 0.5:
        x = d.new_input((1, d.choice((1, 3)) * block**2, 3, 5), dtype)
        attrs = {"blocksize": block, "mode": d.choice(("DCR", "CRD"))}
        return Call("DepthToSpace", [x], attrs=attrs, exact=True)
    x = d.new_input((1, d.choice((1, 3, 16)), 2 * block, block), dtype)
    return Call("SpaceToDepth", [x], attrs={"blocksize": block}, exact=True)


def trilu(d: Draft) -> Call:
    x = d.pick(ANY, least=2)
    diagonal = np.array(d.between(-2, 3), np.int64)
    return Call("Trilu", [x, diagonal], attrs={"upper": d.between(0, 1)}, exact=True)


def one_hot(d: Draft) -> Call:
    x = d.pick((INT64,))
    values = np.array([0.5, 2], np.float32)
    axis = d.between(-x.rank - 1, x.rank)
    return Call("OneHot", [x, np.array(5, np.int64), values], attrs={"axis": axis}, exact=True)


def resize(d: Draft) -> Call:
    rank = d.choice((3, 4, 4, 4))
    x = d.pick((FLOAT,), rank=rank)
    mode = d.choice(("nearest", "linear", "linear", *(("cubic",) if rank == 4 else ())))
    where = d.choice(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
    if mode == "nearest":
        where = d.choice(("asymmetric", "half_pixel"))
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    if d.rng.random() < 0.5:
        factors = [d.choice((0.5, 1, 2, 1.5, 3)) for _ in range(rank - 2)]
        scales = np.array([1, 1, *factors], np.float32)
        return Call("Resize", [x, None, scales], attrs=attrs, magnitude=2 * x.magnitude)
    sizes = _ints(*x.shape[:2], *(d.between(1, 2 * e + 1) for e in x.shape[2:]))
    return Call("Resize", [x, None, None, sizes], attrs=attrs, magnitude=2 * x.magnitude)


def top_k(d: Draft) -> Call:
    x = d.pick((FLOAT, DOUBLE, INT64, *NUMBERS), least=1, exact=True)
    axis = d.axis(x)
    count = d.between(1, max(x.shape[axis], 1))
    attrs = {"axis": axis, "largest": d.between(0, 1)}
    return Call("TopK", [x, _ints(count)], outputs=2, attrs=attrs, exact=True)


def reverse_sequence(d: Draft) -> Call:
    x = d.pick((FLOAT, INT64), least=2)
    lengths = d.arrays.integers(1, x.shape[0] + 1, x.shape[1])
    return Call("ReverseSequence", [x, lengths], exact=True)


def residual(d: Draft) -> Call:
    """The second half of a diamond: a late value plus an earlier one of its shape."""
    a = d.pick(FLOATS, most=100.0)
    b = d.other(a.shape, a.dtype)
    other = b.magnitude if isinstance(b, Tensor) else 2.0
    return Call("Add", [a, b], exact=True, magnitude=a.magnitude + other)
