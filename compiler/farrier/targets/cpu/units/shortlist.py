"""A short list of the best register tiles for one contraction, each encoded as one value of a knob.

A kernel with several contractions has too many combinations of tiles to enumerate them all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from farrier.space.machine import Machine
from farrier.space.space import Columns, Floats
from farrier.targets.cpu.units import microkernel

_BITS = 6  # The bits of a value for each extent.


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """A register tile: its number of vectors along the lanes, and its rows and columns of
    points."""

    vectors: int
    rows: int
    columns: int

    @classmethod
    def of(cls, value: int) -> Tile:
        """Decode the tile from the value of a knob."""
        return cls(*(int(part) for part in parts(np.array(value))))


def parts(
    values: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the vectors, rows and columns of the tiles that are encoded in `values`."""
    last = (1 << _BITS) - 1
    return values >> 2 * _BITS, values >> _BITS & last, values & last


def tile_extents(values: npt.NDArray[np.int64]) -> Columns:
    """Decode the tiles in `values` to three named columns, the numbers of vectors, rows and
    columns, as features for the learned cost model."""
    return dict(zip(("vectors", "rows", "columns"), parts(values), strict=True))


def tiles_of(
    values: npt.NDArray[np.int64], unroll: Floats, order: Floats, prefetch: bool
) -> microkernel.Tiles:
    """Decode the tiles in `values` to the form that the cost model takes. All of them get the same
    values of the other decisions: `unroll`, `order` and `prefetch`."""
    vectors, rows, columns = (part.astype(np.float64) for part in parts(values))
    fetched = np.full(len(values), float(prefetch))
    return microkernel.Tiles(
        vectors, rows, columns, unroll, order, fetched, ahead=0 * order, slices=0 * order + 1
    )


def shortlist(
    problem: microkernel.Problem,
    machine: Machine,
    choices: tuple[Iterable[int], Iterable[int], Iterable[int]],
    count: int,
) -> tuple[int, ...]:
    """Return the `count` tiles with the shortest predicted time, best first, among all tiles that
    fit in the registers. `choices` are the possible numbers of vectors, rows and columns."""
    grid = np.meshgrid(*(np.array(list(choice), np.int64) for choice in choices), indexing="ij")
    vectors, rows, columns = (axis.reshape(-1) for axis in grid)
    values = (vectors << 2 * _BITS) + (rows << _BITS) + columns
    held = rows * columns if problem.by_lane else 1
    values = values[machine.fits(vectors, rows * columns, held=held)]
    ones = np.ones(len(values))
    tiles = tiles_of(values, ones, ones * microkernel.LoopOrder.PARTS, prefetch=False)
    seconds = microkernel.estimate(problem, tiles, machine).seconds
    return tuple(int(value) for value in values[np.argsort(seconds, kind="stable")[:count]])
