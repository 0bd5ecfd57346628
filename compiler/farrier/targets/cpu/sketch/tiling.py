"""The tile sizes of the candidates for one nest, as input of the cost estimate."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.space.space import Floats

Ints = npt.NDArray[np.int64]
NONE = -1  # The number of an axis where there is none.


@dataclasses.dataclass(frozen=True)
class Tiling:
    """The tile of each candidate. All arrays have the shape [candidates].

    A tile has `vectors` vectors of `width` lanes along the axis `lanes`, times `rows` points along
    the axis `row`, and one point along all other axes. Axes have the numbers of the nest; if
    `lanes` is a reduced axis, the lanes hold partial sums.
    """

    lanes: Ints
    vectors: Ints
    row: Ints
    rows: Ints
    parallel: Ints
    width: int

    def tile(self, axes: int) -> Floats:
        """Return the number of points of a tile along each of the first `axes` axes: [axes,
        candidates]."""
        sizes = np.ones((axes, len(self.lanes)))
        number = np.arange(axes)[:, None]
        sizes *= np.where(number == self.lanes, self.vectors * self.width, 1)
        sizes *= np.where(number == self.row, self.rows, 1)
        return sizes
