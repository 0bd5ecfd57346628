"""The anchor of a kernel: the stage that is computed before the kernel's epilogue, and decides how
the kernel is tiled."""

from __future__ import annotations

import dataclasses
import enum

from farrier.ir.tensor import Stage
from farrier.ir.types import Layout
from farrier.targets.dae.images import Image


class Method(enum.Enum):
    """The way in which the accelerator computes an anchor."""

    PRODUCTS = "products"  # The matrix unit sums products over channels and taps.
    # The vector unit sums products over taps. Each channel has its own weights.
    DEPTHWISE = "depthwise"


@dataclasses.dataclass(frozen=True, slots=True)
class Axes:
    """The positions of an output's axes by role; None for a role that has no axis."""

    channel: int
    y: int | None
    x: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Weights:
    """The weights of an anchor: their position among the arguments, and their layout in memory."""

    position: int
    layout: Layout


@dataclasses.dataclass(frozen=True, slots=True)
class Anchor:
    """A convolution or a matrix product. Extents are in points, and in blocks of channels."""

    method: Method
    data: Image
    weights: Weights
    out: Image
    axes: Axes
    sums: Stage
    blocks_in: int
    blocks_out: int
    height: int
    width: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)  # The padding before the first line and column of the image.
    fill: int = 0

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def is_on_sums(self) -> bool:
        """Check whether the vector unit computes the anchor, from an image in the scratchpad of
        sums."""
        return self.method is not Method.PRODUCTS

    def rows_of(self, axis: int, points: int) -> int:
        """Return the number of input points along an axis that are read for `points` output
        points."""
        window = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        return (points - 1) * self.strides[axis] + window
