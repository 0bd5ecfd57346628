"""The algorithms for a convolution, and the numerical error of each."""

from __future__ import annotations

import enum
from typing import Protocol

from farrier.ir.types import DType
from farrier.ops.filtering import ERRORS

CHOICE = "choose-algorithms"  # The name of the pass that chooses, in the order of a backend.


class Algorithm(enum.StrEnum):
    """An algorithm for a convolution: the direct sum, or Winograd's minimal filtering in tiles."""

    DIRECT = "direct"
    WINOGRAD2 = "winograd2"
    WINOGRAD3 = "winograd3"
    WINOGRAD4 = "winograd4"
    WINOGRAD6 = "winograd6"

    @property
    def tile(self) -> int:
        """The number of outputs of a Winograd tile along one axis; 0 for the direct sum."""
        return _TILES[self]

    @property
    def error(self) -> float:
        """An upper bound of the error of one layer in f32, as max |error| over max |result|."""
        return ERRORS.get(self.tile, DIRECT_ERROR)

    def weights(self, operands: DType) -> DType:
        """Return the dtype of the weights and of the products' factors in a layer with operands of
        type `operands`. Larger Winograd tiles would quadruple the error of bf16, and no instruction
        multiplies f16 tiles."""
        largest = _LARGEST_BF16_TILE if operands is DType.BF16 else 0
        return DType.F32 if self.tile > largest else operands

    def error_of(self, operands: DType) -> float:
        """Return an upper bound of the error of one layer whose operands are rounded to the dtype,
        in the unit of `error`."""
        if operands is DType.F16:
            return _F16_ERRORS.get(self.tile, _ROUNDED_INPUT_ERROR / 8)
        if operands is not DType.BF16:
            return self.error
        return _BF16_ERRORS.get(self.tile, _ROUNDED_INPUT_ERROR)


class Layer(Protocol):
    """A convolution for which several algorithms may be chosen."""

    @property
    def key(self) -> str:
        """The identity of the layer in tuning records: 64 hex digits that hash everything that
        affects the speed of the algorithms."""
        ...

    @property
    def operands(self) -> DType:
        """The dtype of the two factors in the direct sum."""
        ...

    @property
    def origin(self) -> str:
        """The names of the model's nodes from which the layer was derived."""
        ...

    @property
    def allowed(self) -> tuple[Algorithm, ...]:
        """The algorithms whose error the user allows; the direct sum is always one of them."""
        ...

    @property
    def fastest(self) -> Algorithm:
        """The fastest of the allowed algorithms according to the machine model."""
        ...

    def seconds(self, way: Algorithm) -> float:
        """Return the predicted time of an algorithm when all threads work on the layer, in
        seconds."""
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
_BF16_ERRORS = {0: 5e-3, 2: 8e-3}  # Error bounds by the size of the tile.
_F16_ERRORS = {0: 4e-3}
_ROUNDED_INPUT_ERROR = 4e-3  # The error of a layer in f32 whose input was stored as bf16.
