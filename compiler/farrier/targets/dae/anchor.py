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
    MAXIMA = "maxima"  # The vector unit takes the maximum over the taps of each channel.
    SUMS = "sums"  # The vector unit sums the taps of each channel.
    NONE = "none"  # The kernel is an epilogue on tensors, and nothing precedes it.


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
    """A convolution, a matrix product, a pool, or the elements of a kernel that has only an
    epilogue. Extents are in points, and in blocks of channels."""

    method: Method
    data: Image | None  # The image that is read; None if there is only an epilogue.
    weights: Weights | None
    out: Image
    axes: Axes
    stage: Stage | None  # The stage in the tensor program; None if there is only an epilogue.
    blocks_in: int
    blocks_out: int
    height: int
    width: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)  # The padding before the first line and column of the image.
    fill: int = 0
    initial: int = 0  # The value of a sum before the first tap.
    # The points are a line of elements without channels, for tensors whose axes do not matter.
    is_flat: bool = False

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def is_on_sums(self) -> bool:
        """Check whether the vector unit computes the anchor, from an image in the scratchpad of
        sums."""
        return self.method not in (Method.PRODUCTS, Method.NONE)

    @property
    def image(self) -> Image:
        """The image that is read. It exists unless there is only an epilogue."""
        assert self.data is not None
        return self.data

    def rows_of(self, axis: int, points: int) -> int:
        """Return the number of input points along an axis that are read for `points` output
        points."""
        window = (self.kernel[axis] - 1) * self.dilations[axis] + 1
        return (points - 1) * self.strides[axis] + window
