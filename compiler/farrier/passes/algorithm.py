"""The ways to compute a convolution, and how exact each is."""

from __future__ import annotations

import enum

from farrier.ops import winograd


class Algorithm(enum.StrEnum):
    """Ways to compute a convolution: the direct sum, or Winograd's filtering in tiles."""

    DIRECT = "direct"
    WINOGRAD2 = "winograd2"
    WINOGRAD4 = "winograd4"
    WINOGRAD6 = "winograd6"

    @property
    def tile(self) -> int:
        """Outputs of a tile along one axis; 0 for the direct sum."""
        return _TILES[self]

    @property
    def error(self) -> float:
        """What one layer in f32 stays below, as max |error| over max |result|."""
        return winograd.ERRORS.get(self.tile, DIRECT_ERROR)


_TILES = {
    Algorithm.DIRECT: 0,
    Algorithm.WINOGRAD2: 2,
    Algorithm.WINOGRAD4: 4,
    Algorithm.WINOGRAD6: 6,
}
DIRECT_ERROR = 2e-6
