"""The tiles that candidates of a sketch make of one nest, as the estimate sees them."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.space.space import Floats

Ints = npt.NDArray[np.int64]
NONE = -1  # The number of an axis where there is none.


@dataclasses.dataclass(frozen=True)
class Tiling:
    """One tile of each candidate, all arrays [candidates].

    A tile has `vectors` vectors of `width` lanes along the axis `lanes`, by `rows` points along the
    axis `row`; all else is one point. Axes are numbered as those of the nest: lanes along a reduced
    axis hold partial sums.
    """

    lanes: Ints
    vectors: Ints
    row: Ints
    rows: Ints
    parallel: Ints
    width: int

    def tile(self, axes: int) -> Floats:
        """Return the points of a tile along each of `axes` axes, [axes, candidates]."""
        sizes = np.ones((axes, len(self.lanes)))
        number = np.arange(axes)[:, None]
        sizes *= np.where(number == self.lanes, self.vectors * self.width, 1)
        sizes *= np.where(number == self.row, self.rows, 1)
        return sizes
