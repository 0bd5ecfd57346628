"""Rules of operators that read or write elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from farrier.frontends.torch.scope import LAST, Scope
from farrier.frontends.torch.table import aten
from farrier.ir.types import DType
from farrier.ops import NotSupported


@aten("aten.embedding.default")
def embedding(
    s: Scope,
    weight: str,
    indices: str,
    padding_idx: int = -1,
    scale: bool = False,
    sparse: bool = False,
) -> str:
    return s.node("Gather", weight, indices, axis=0)


@aten("aten.index_select.default")
def index_select(s: Scope, x: str, dim: int, indices: str) -> str:
    return s.node("Gather", x, indices, axis=s.axis(x, dim))


@aten("aten.gather.default")
def gather(s: Scope, x: str, dim: int, indices: str, sparse_grad: bool = False) -> str:
    if not s.rank(x):
        return x
    return s.node("GatherElements", x, indices, axis=s.axis(x, dim))


@aten("aten.take_along_dim.default")
def take_along_dim(s: Scope, x: str, indices: str, dim: int | None = None) -> str:
    if dim is None:
        return s.node("GatherElements", s.reshape(x, [-1]), s.reshape(indices, [-1]), axis=0)
    axis = s.axis(x, dim)
    shape = list(s.shape(x))
    shape[axis] = s.shape(indices)[axis]
    return s.node("GatherElements", x, s.expand(indices, shape), axis=axis)


@aten("aten.masked_select.default")
def masked_select(s: Scope, x: str, mask: str) -> str:
    return s.node("Compress", s.reshape(x, [-1]), s.reshape(mask, [-1]), axis=0)


@aten("aten.index.Tensor")
def index(s: Scope, x: str, indices: Sequence[str | None]) -> str:
    axes = [axis for axis, places in enumerate(indices) if places is not None]
    selectors = [places for places in indices if places is not None]
    if len(selectors) == 1 and s.dtype(selectors[0]) is DType.BOOL:
        if s.rank(selectors[0]) == s.rank(x):
            return masked_select(s, x, selectors[0])
        if s.rank(selectors[0]) == 1:
            return s.node("Compress", x, selectors[0], axis=axes[0])
    if any(s.dtype(places) is DType.BOOL for places in selectors):
        raise NotSupported("indexing by a mask beside other indices, or of several dimensions,")
    if len(axes) == 1:
        return s.node("Gather", x, selectors[0], axis=axes[0])
    return _gathered(s, x, axes, selectors)


def _gathered(s: Scope, x: str, axes: Sequence[int], selectors: Sequence[str]) -> str:
    """Return the elements of `x` at positions along several axes. `selectors` has a tensor of
    positions for each axis in `axes`; the tensors are broadcast together, as in `x[:, i, j]`."""
    rest = [axis for axis in range(s.rank(x)) if axis not in axes]
    points = _points(s, x, axes, selectors)
    picked = s.node("GatherND", s.transpose(x, [*axes, *rest]), points)
    first, depth = axes[0], s.rank(points) - 1
    if not first or list(axes) != list(range(first, first + len(axes))):
        return picked
    # Adjacent indices leave their result where they stood, behind the axes before them.
    order = [*range(depth, depth + first), *range(depth), *range(depth + first, s.rank(picked))]
    return s.transpose(picked, order)


def _points(s: Scope, x: str, axes: Sequence[int], selectors: Sequence[str]) -> str:
    """Broadcast the index tensors `selectors` to one shape, and stack them along a new last axis. A
    negative index is replaced by the equal non-negative one: `axes` names the axis of `x` that each
    selector indexes."""
    places = [
        _positive(s, x, a, s.cast(p, DType.I64)) for a, p in zip(axes, selectors, strict=True)
    ]
    total = places[0]
    for more in places[1:]:
        total = s.node("Add", total, more)
    shape = s.shape(total)
    wide = [p if s.shape(p) == shape else s.expand(p, shape) for p in places]
    return s.concat([s.unsqueeze(p, len(shape)) for p in wide], len(shape))


def _positive(s: Scope, x: str, axis: int, places: str) -> str:
    """Return indices along an axis with negative ones counted from the front."""
    constant = s.b.data(places)
    if (
        constant is not None
        and constant.dtype != object
        and (not constant.size or constant.min() >= 0)
    ):
        return places
    extent = s.tensor(s.shape(x)[axis], DType.I64)
    negative = s.node("Less", places, s.scalar(0, DType.I64))
    return s.node("Where", negative, s.node("Add", places, extent), places)


@aten("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    s: Scope, x: str, indices: Sequence[str | None], values: str, accumulate: bool = False
) -> str:
    axes = [axis for axis, places in enumerate(indices) if places is not None]
    selectors = [places for places in indices if places is not None]
    values = s.cast(values, s.dtype(x))
    if len(selectors) == 1 and s.dtype(selectors[0]) is DType.BOOL and axes == [0]:
        return _put_by_mask(s, x, selectors[0], values)
    if axes != list(range(len(axes))) or any(s.dtype(p) is DType.BOOL for p in selectors):
        raise NotSupported("writing by indices behind other axes, or by several masks,")
    points = _points(s, x, axes, selectors)
    shape = [*s.shape(points)[:-1], *s.shape(x)[len(axes) :]]
    reduction = "add" if accumulate else "none"
    return s.node("ScatterND", x, points, s.expand(values, shape), reduction=reduction)


def _put_by_mask(s: Scope, x: str, mask: str, values: str) -> str:
    if s.rank(values) and not all(size == 1 for size in s.shape(values)):
        raise NotSupported("writing several values by a mask")
    if s.rank(mask) < s.rank(x):
        mask = s.unsqueeze(mask, *range(s.rank(mask), s.rank(x)))
    return s.node("Where", mask, values, x)


@aten("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default")
def scatter(s: Scope, x: str, dim: int, indices: str, source: Any) -> str:
    shape = s.shape(indices)
    if isinstance(source, str):
        for axis, size in enumerate(shape):
            if s.shape(source)[axis] != size:
                source = s.slice(source, axis, 0, size)
    else:
        source = s.full(shape, source, s.dtype(x))
    reduction = "add" if "scatter_add" in s.call.target else "none"
    return s.node("ScatterElements", x, indices, source, axis=s.axis(x, dim), reduction=reduction)


@aten("aten.index_copy.default", "aten.index_add.default")
def index_copy(s: Scope, x: str, dim: int, indices: str, source: str, alpha: float = 1) -> str:
    if alpha != 1:
        raise NotSupported(f"index_add with alpha {alpha}")
    return _copied(s, x, s.axis(x, dim), indices, source, adds="index_add" in s.call.target)


def _copied(s: Scope, x: str, axis: int, indices: str, source: str, adds: bool = False) -> str:
    """Return the tensor with slices of an axis replaced by those of `source`, or, with `adds`,
    added to them."""
    order = [axis, *(a for a in range(s.rank(x)) if a != axis)]
    points = s.unsqueeze(s.cast(indices, DType.I64), 1)
    written = s.node(
        "ScatterND",
        s.transpose(x, order),
        points,
        s.transpose(source, order),
        reduction="add" if adds else "none",
    )
    return s.transpose(written, [int(place) for place in np.argsort(order)])


@aten("aten.index_fill.int_Scalar")
def index_fill(s: Scope, x: str, dim: int, indices: str, value: Any) -> str:
    axis = s.axis(x, dim)
    shape = list(s.shape(x))
    shape[axis] = s.shape(indices)[0]
    return _copied(s, x, axis, indices, s.full(shape, value, s.dtype(x)))


@aten("aten.slice_scatter.default")
def slice_scatter(
    s: Scope, x: str, source: str, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> str:
    axis = s.axis(x, dim)
    source = s.cast(source, s.dtype(x))
    start, end = 0 if start is None else start, LAST if end is None else end
    if (start, end, step) == (0, LAST, 1):
        return source
    if step != 1:
        places = s.slice(s.node("Range", 0, s.shape(x)[axis], 1), 0, start, end, step)
        return _copied(s, x, axis, places, source)
    before = [] if start == 0 else [s.slice(x, axis, 0, start)]
    after = [] if end == LAST else [s.slice(x, axis, end, LAST)]
    return s.concat([*before, source, *after], axis)


@aten("aten.select_scatter.default")
def select_scatter(s: Scope, x: str, source: str, dim: int, index: Any) -> str:
    axis = s.axis(x, dim)
    place = s.place(x, axis, index) if isinstance(index, int) else index
    row = s.unsqueeze(s.cast(source, s.dtype(x)), axis)
    if place == s.shape(x)[axis] - 1:
        return s.concat([s.slice(x, axis, 0, place), row], axis)
    return slice_scatter(s, x, row, dim, place, s.numbers("Add", place, 1))


@aten("aten.fill.Scalar", "aten.fill.Tensor")
def fill(s: Scope, x: str, value: Any) -> str:
    return s.full(s.shape(x), value, s.dtype(x))


@aten("aten.zero.default")
def zero(s: Scope, x: str) -> str:
    return s.full(s.shape(x), 0, s.dtype(x))


@aten("aten.copy.default")
def copy(s: Scope, x: str, source: str, non_blocking: bool = False) -> str:
    y = s.cast(source, s.dtype(x))
    return y if s.shape(y) == s.shape(x) else s.expand(y, s.shape(x))


@aten("aten.one_hot.default")
def one_hot(s: Scope, x: str, classes: int = -1) -> str:
    if classes == -1:
        raise NotSupported("one_hot without a number of classes")
    return s.node("OneHot", x, classes, s.ints([0, 1]))


@aten("aten.bucketize.Tensor")
def bucketize(
    s: Scope, values: str, bounds: str, out_int32: bool = False, right: bool = False
) -> str:
    op = "LessOrEqual" if right else "Less"
    below = s.node(op, bounds, s.unsqueeze(values, s.rank(values)))
    count = s.node("ReduceSum", s.cast(below, DType.I64), s.ints([s.rank(values)]), keepdims=0)
    return s.cast(count, s.result)
