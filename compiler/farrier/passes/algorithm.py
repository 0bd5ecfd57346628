"""The ways to compute a convolution, and how exact each is."""

from __future__ import annotations

import enum
from typing import Protocol

from farrier.ir.types import DType
from farrier.ops.filtering import ERRORS

CHOICE = "choose-algorithms"  # The name of the pass that chooses, in the order of a backend.


class Algorithm(enum.StrEnum):
    """Ways to compute a convolution: the direct sum, or Winograd's filtering in tiles."""

    DIRECT = "direct"
    WINOGRAD2 = "winograd2"
    WINOGRAD3 = "winograd3"
    WINOGRAD4 = "winograd4"
    WINOGRAD6 = "winograd6"

    @property
    def tile(self) -> int:
        """Outputs of a tile along one axis; 0 for the direct sum."""
        return _TILES[self]

    @property
    def error(self) -> float:
        """What one layer in f32 stays below, as max |error| over max |result|."""
        return ERRORS.get(self.tile, DIRECT_ERROR)

    def weights(self, operands: DType) -> DType:
        """The dtype of the weights, and of what is multiplied, in a layer of such operands: larger
        tiles would quadruple the error of bf16, and nothing multiplies tiles of f16."""
        largest = _LARGEST_BF16_TILE if operands is DType.BF16 else 0
        return DType.F32 if self.tile > largest else operands

    def error_of(self, operands: DType) -> float:
        """What one layer stays below, its operands rounded to that dtype, as `error` is given."""
        if operands is DType.F16:
            return _F16_ERRORS.get(self.tile, _ROUNDED_INPUT_ERROR / 8)
        if operands is not DType.BF16:
            return self.error
        return _BF16_ERRORS.get(self.tile, _ROUNDED_INPUT_ERROR)


class Layer(Protocol):
    """A convolution that several algorithms could compute."""

    @property
    def key(self) -> str:
        """64 hex digits over all that decides how fast each algorithm is, for records."""
        ...

    @property
    def operands(self) -> DType:
        """The dtype of what the direct sum multiplies."""
        ...

    @property
    def origin(self) -> str:
        """The nodes of the model that it comes from."""
        ...

    @property
    def allowed(self) -> tuple[Algorithm, ...]:
        """The algorithms within the error that the user allows, the direct sum among them."""
        ...

    @property
    def fastest(self) -> Algorithm:
        """The best of the allowed ones by a model of the machine."""
        ...

    def seconds(self, way: Algorithm) -> float:
        """Return how long an algorithm should take, all threads together."""
        ...


_TILES = {
    Algorithm.DIRECT: 0,
    Algorithm.WINOGRAD2: 2,
    Algorithm.WINOGRAD3: 3,
    Algorithm.WINOGRAD4: 4,
    Algorithm.WINOGRAD6: 6,
}
DIRECT_ERROR = 2e-6
_LARGEST_BF16_TILE = 2
_BF16_ERRORS = {0: 5e-3, 2: 8e-3}  # by the tile
_F16_ERRORS = {0: 4e-3}
_ROUNDED_INPUT_ERROR = 4e-3  # of a layer in f32 whose input was stored as bf16
