"""Rules of slices and gathers at computed positions.

As in XLA, a window that would extend beyond the tensor is shifted to lie inside. All become gathers
of entire rows: the indexed axes are moved to the front.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from farrier.frontends.stablehlo.ops.products import numbers_in
from farrier.frontends.stablehlo.scope import Scope
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.dim import Extent
from farrier.ir.types import DType, Shape
from farrier.ops import NotSupported


@hlo("stablehlo.dynamic_slice")
def dynamic_slice(s: Scope, x: str, *starts: str) -> str:
    for axis, (start, size) in enumerate(zip(starts, s.ints_of("slice_sizes"), strict=True)):
        if s.shape(x)[axis] != size:
            x = s.node("Gather", x, _window(s, start, s.shape(x)[axis], size), axis=axis)
    return x


def _window(s: Scope, start: str, length: Extent, size: Extent) -> str:
    """Return the positions of the elements of a window along an axis of `length`, i64 [size]. The
    window starts at `start`; if it would extend beyond the axis, it is shifted to lie inside."""
    first = _within(s, s.cast(start, DType.I64), length, size)
    return s.node("Add", s.reshape(first, [1]), range_of(s, size))


def _within(s: Scope, start: str, length: Extent, size: Extent) -> str:
    last = s.node("Sub", *(s.node("Reshape", [each], s.ints([])) for each in (length, size)))
    return s.node("Min", s.node("Max", start, s.scalar(0, DType.I64)), last)


def range_of(s: Scope, size: Extent) -> str:
    if isinstance(size, int):
        return s.ints(range(size))
    end = s.node("Reshape", [size], s.ints([]))
    return s.node("Range", s.scalar(0, DType.I64), end, s.scalar(1, DType.I64))


@hlo("stablehlo.dynamic_update_slice")
def dynamic_update_slice(s: Scope, x: str, update: str, *starts: str) -> str:
    shape, sizes = s.shape(x), s.shape(update)
    axes = [axis for axis in range(len(shape)) if shape[axis] != sizes[axis]]
    if not axes:
        return update
    order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
    windows = [_window(s, starts[axis], shape[axis], sizes[axis]) for axis in axes]
    grid = [sizes[axis] for axis in axes]
    positions = [
        s.reshape(each, [size if place == other else 1 for other in range(len(axes))])
        for place, (each, size) in enumerate(zip(windows, grid, strict=True))
    ]
    written = s.node(
        "ScatterND", s.transpose(x, order), _stacked(s, positions, grid), s.transpose(update, order)
    )
    return s.transpose(written, inverse(order))


def _stacked(s: Scope, positions: Sequence[str], grid: Sequence[Extent]) -> str:
    """Broadcast each tensor in `positions` (the positions along one axis) to the shape `grid`, and
    stack them along a new last axis."""
    return s.concat([s.reshape(s.expand(each, grid), [*grid, 1]) for each in positions], len(grid))


def inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=lambda place: order[place])


class Positions:
    """The start positions of windows in an operand. There is one window for each element of a
    batch. For each indexed axis of the operand, the positions along this axis are an i64 tensor
    with the shape of the batch."""

    def __init__(self, s: Scope, indices: str, axis: int, owners: Sequence[int]) -> None:
        """Read the start positions from the tensor `indices`. Its axis `axis` has one entry for
        each axis of the operand in `owners`; its other axes are those of the batch."""
        self._s = s
        rank = s.rank(indices)
        wide = s.cast(indices, DType.I64)
        if axis == rank:
            wide = s.reshape(wide, [*s.shape(wide), 1])
        others = [each for each in range(s.rank(wide)) if each != axis]
        moved = s.transpose(wide, [*others, axis])
        self.batches: Shape = s.shape(moved)[:-1]
        self._of = {
            owner: s.reshape(s.slice(moved, len(others), place, place + 1), self.batches)
            for place, owner in enumerate(owners)
        }

    def add_batches(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Add axes of the operand that correspond to axes of the batch. For each pair (operand
        axis, batch axis) in `pairs`, the position along the operand axis is the window's own index
        along the batch axis."""
        for owner, batch in pairs:
            size = self.batches[batch]
            sizes = [size if place == batch else 1 for place in range(len(self.batches))]
            line = self._s.reshape(range_of(self._s, size), sizes)
            self._of[owner] = self._s.expand(line, self.batches)

    @property
    def axes(self) -> list[int]:
        """The indexed axes of the operand, sorted."""
        return sorted(self._of)

    def __getitem__(self, axis: int) -> str:
        return self._of.get(axis) or self._s.expand(
            self._s.b.constant(np.zeros((1,) * len(self.batches), np.int64)), self.batches
        )

    def set(self, axis: int, value: str) -> None:
        """Replace the positions along an axis."""
        self._of[axis] = value

    def windows(self, axes: Sequence[int], sizes: Mapping[int, Extent]) -> str:
        """Return the positions of all elements of the windows along `axes`, i64 [batch axes…,
        window axes…, number of axes]. `sizes` are the sizes of the windows by axis."""
        s, count = self._s, len(self.batches)
        grid = [*self.batches, *(sizes[axis] for axis in axes)]
        positions = []
        for place, axis in enumerate(axes):
            start = s.reshape(self[axis], [*self.batches, *([1] * len(axes))])
            if sizes[axis] != 1:
                line = [1] * len(grid)
                steps = range_of(s, sizes[axis])
                where = [sizes[axis] if at == count + place else 1 for at, _ in enumerate(line)]
                start = s.node("Add", start, s.reshape(steps, where))
            positions.append(start)
        return _stacked(s, positions, grid)


@hlo("stablehlo.gather")
def gather(s: Scope, x: str, indices: str) -> str:
    return _gather(s, x, indices, s.ints_of("slice_sizes"))


@hlo("stablehlo.dynamic_gather")
def dynamic_gather(s: Scope, x: str, indices: str, sizes: str) -> str:
    extents = s.sizes_in(sizes)
    if extents is None:
        raise NotSupported("dynamic_gather of sizes that values decide")
    return _gather(s, x, indices, extents)


def _gather(s: Scope, x: str, indices: str, sizes: Sequence[Extent]) -> str:
    dims = numbers_in(s.attr("dimension_numbers").text)
    index_axis = number_in(s.attr("dimension_numbers").text, "index_vector_dim")
    shape = s.shape(x)
    batching = dims.get("operand_batching_dims", [])
    positions = Positions(s, indices, index_axis, dims.get("start_index_map", []))
    for axis in positions.axes:
        positions.set(axis, _within(s, positions[axis], shape[axis], sizes[axis]))
    positions.add_batches(
        list(
            zip(batching, batches_of(dims, "start_indices_batching_dims", index_axis), strict=True)
        )
    )
    gone = {*dims.get("collapsed_slice_dims", []), *batching}
    partial = [axis for axis in range(len(shape)) if sizes[axis] != shape[axis]]
    taken = sorted({*positions.axes, *partial})
    whole = [axis for axis in range(len(shape)) if axis not in taken]
    y = _taken(s, x, positions, taken, whole, dict(enumerate(sizes)))
    kept = [axis for axis in taken if axis not in gone]
    y = s.reshape(y, [*positions.batches, *(sizes[a] for a in kept), *(shape[a] for a in whole)])
    offsets = dims.get("offset_dims", [])
    return s.transpose(y, _interleaved(len(positions.batches), offsets, [*kept, *whole]))


def _taken(
    s: Scope,
    x: str,
    positions: Positions,
    taken: Sequence[int],
    whole: Sequence[int],
    sizes: Mapping[int, Extent],
) -> str:
    """Return the windows of a tensor. The result has the axes of the batch, then the axes `taken`
    of the window, whose sizes are in `sizes`, and then the axes `whole` of the tensor, which are
    read entirely."""
    if len(taken) == 1 and sizes[taken[0]] == 1:
        rows = s.transpose(x, [*taken, *whole])
        return s.node("Gather", rows, positions[taken[0]], axis=0)
    if not taken:
        shape = s.shape(x)
        apart = s.reshape(x, [*([1] * len(positions.batches)), *shape])
        return s.expand(apart, [*positions.batches, *shape])
    moved = s.transpose(x, [*taken, *whole])
    return s.node("GatherND", moved, positions.windows(taken, sizes))


def _interleaved(batches: int, offsets: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Return the permutation that moves axes in the order (batch axes, window axes) to their
    positions in the result. Window axis i is axis `owners[i]` of the operand. The result has the
    window axes at the positions `offsets`, in the order of the operand's axes, and the batch axes
    at all other positions."""
    ascending = sorted(range(len(owners)), key=lambda place: owners[place])
    windows = iter([batches + place for place in ascending])
    heads = itertools.count()
    rank = batches + len(owners)
    return [next(windows) if axis in offsets else next(heads) for axis in range(rank)]


def batches_of(dims: Mapping[str, list[int]], key: str, index_axis: int) -> list[int]:
    """Return the axes of the batch that the attribute `key` lists. The attribute counts axes of the
    indices, of which the axis `index_axis` does not belong to the batch."""
    return [axis - (axis > index_axis) for axis in dims.get(key, [])]


def number_in(text: str, key: str) -> int:
    start = text.find(f"{key} = ")
    if start < 0:
        return 0
    return int(text[start + len(key) + 3 :].split(",")[0].strip(" ]>"))
