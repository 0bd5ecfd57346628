"""The strides with which the loops of a nest step through the buffers that it accesses, for cost
estimates.

For `x[n, c, 2*y + ky]` with f32[1, 8, 20] and axes (n, c, y, ky): the strides are (160, 20, 2, 1)
elements; 5 values of y and 3 of ky cover 11 elements of the last axis.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, typical
from farrier.ir.expr import Axis, Load, Var
from farrier.ir.substitute import loads, variables
from farrier.ir.tensor import Stage
from farrier.ir.types import Layout
from farrier.space.space import Floats

_LINE = 64  # Bytes of a cache line, on every CPU that has a description here.
# The cost, in loads, of one lane that is loaded individually: its load and the insertion into the
# vector. Measured: with a transposed operand, a product of 256³ takes 1.8 times as long as with a
# copy of it.
_COLLECTED = 1.5
_FAR = 1 << 20  # The stride, in elements, of an index that follows no linear form.


@dataclasses.dataclass(frozen=True)
class Access:
    """A load or store in a loop nest. Axes have the numbers of the nest's loops.

    `strides` [axes] are the elements in memory from one iteration of each axis to the next; `steps`
    [dimensions, axes] are the same separately for each dimension of the buffer, whose extents are
    `shape` [dimensions]. `inner` is the dimension along which adjacent elements lie in memory, -1
    for a scalar.
    """

    strides: Floats
    steps: Floats
    shape: Floats
    inner: int
    nbytes: int

    def footprint(self, extents: Floats) -> Floats:
        """Return the bytes of all cache lines that a block of iterations touches. `extents` [axes,
        candidates] are the iterations along each axis; the result is [candidates]."""
        if self.inner < 0:
            return np.full(extents.shape[1], float(_LINE))
        moves = (self.steps[:, :, None] * (extents - 1)[None]).sum(axis=1) + 1
        several = np.where(self.steps[:, :, None] > 0, extents[None], 1.0).prod(axis=1)
        covered = np.minimum(np.minimum(moves, several), self.shape[:, None])
        run = covered[self.inner] * self.nbytes
        lines: Floats = covered.prod(axis=0) / covered[self.inner] * np.ceil(run / _LINE) * _LINE
        return lines


def accesses(stage: Stage, axes: tuple[Axis, ...], without: frozenset[str]) -> list[Access]:
    """Return the loads of a stage over the loops `axes`, except loads of the buffers named in
    `without`."""
    simplifier = Simplifier({axis.name: axis.extent for axis in axes})
    distinct = {(r.buffer.name, r.indices): r for r in loads(stage.body)}
    return [
        _access(load, axes, simplifier)
        for load in distinct.values()
        if load.buffer.name not in without
    ]


def store(stage: Stage) -> Access:
    """Return the store of a stage as an Access."""
    point = tuple(Var(axis.name) for axis in stage.axes)
    ranges = {axis.name: axis.extent for axis in stage.axes}
    return _access(Load(stage.buffer, point), stage.axes, Simplifier(ranges))


def _access(load: Load, axes: tuple[Axis, ...], simplifier: Simplifier) -> Access:
    buffer = load.buffer
    distances, inner = _distances(buffer.layout, tuple(buffer.shape))
    steps = np.zeros((len(buffer.shape), len(axes)))
    far = np.zeros(len(axes))
    places = {axis.name: at for at, axis in enumerate(axes)}
    for dimension, index in enumerate(load.indices):
        for atom, factor in simplifier.linear(index).terms.items():
            for name in variables(atom) & places.keys():
                is_linear = isinstance(atom, Var)
                steps[dimension, places[name]] += abs(typical(factor)) if is_linear else 1
                far[places[name]] += 0 if is_linear else _FAR
    strides = np.array(distances).reshape(1, -1) @ steps if distances else np.zeros((1, len(axes)))
    shape = np.array([max(typical(extent), 1) for extent in buffer.shape], np.float64)
    return Access(strides[0] + far, steps, shape, inner, buffer.dtype.nbytes)


def _distances(layout: Layout | None, shape: tuple[Extent, ...]) -> tuple[list[float], int]:
    """Return two values for a buffer with this layout: the distance in elements between neighbours
    along each axis (within a block, if the axis is blocked), and the axis along which adjacent
    elements are contiguous."""
    layout = layout or Layout.plain(len(shape))
    physical = [typical(extent) for extent in layout.physical_shape(shape)]
    distances = [0.0] * len(shape)
    distance = 1.0
    for dim, extent in zip(reversed(layout.dims), reversed(physical), strict=True):
        if not distances[dim.axis]:
            distances[dim.axis] = distance
        distance *= max(extent, 1)
    return distances, layout.dims[-1].axis if layout.dims else -1


def lane_costs(access: Access, lanes: npt.NDArray[np.int64], width: int) -> Floats:
    """Return the number of loads for one vector along each candidate's axis `lanes`: 1 if the
    elements are adjacent or equal in all lanes, otherwise a load and an insertion for each of
    `width` lanes."""
    # The appended stride 0 is for candidates without lanes.
    strides = np.append(access.strides, 0.0)
    beyond = np.where(lanes < len(access.strides), lanes, -1)
    costs: Floats = np.where(strides[beyond] <= 1, 1.0, _COLLECTED * width)
    return costs


def moves_with(access: Access, axis: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Check for each candidate whether the accessed address depends on the axis with that number;
    -1 stands for no axis."""
    strides = np.append(access.strides, 0.0)
    moves: npt.NDArray[np.bool_] = strides[np.where(axis < len(access.strides), axis, -1)] > 0
    return moves
