"""A builder for formats with images in NHWC, which keeps them in NCHW, the layout of Farrier's
operators.

Most images of TFLite and JAX are NHWC. An operator that computes an image defines it in NCHW, and
its transpose to NHWC under the tensor's name. The next operator reads the NCHW image, and a
transpose without readers is removed:

    conv (NCHW) → transpose → add → transpose → conv      becomes      conv → add → conv
"""

from __future__ import annotations

from farrier.frontends.builder import Builder
from farrier.frontends.builder.signature import Signature
from farrier.ops import Mismatch

_LEAST_RANK = 3  # An image, or a line, has a batch and channels.


class ImageBuilder(Builder):
    """A builder of graphs whose images have their channels as the last axis."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self._first: dict[str, str] = {}  # The names of images with channels first.

    def has_channels_first(self, x: str) -> bool:
        """Check whether an image is already available with its channels as axis 1."""
        # A name that a region has defined ends with it.
        return self._first.get(x, "") in self.values.names

    def channels_first(self, x: str) -> str:
        """Return an image, or a volume, transposed so that its channels are axis 1."""
        rank = len(self.shape(x))
        if rank < _LEAST_RANK:
            raise Mismatch(f"an image of shape {self.shape(x)} has too few axes")
        if not self.has_channels_first(x):
            self._first[x] = self.add("Transpose", x, perm=first_axes(rank))
        return self._first[x]

    def channels_last(self, x: str) -> str:
        """Return an image, or a volume, transposed so that its channels are the last axis."""
        last = self.add("Transpose", x, perm=(0, *range(2, len(self.shape(x))), 1))
        self._first[last] = x
        return last


def first_axes(rank: int) -> tuple[int, ...]:
    """Return the permutation that moves the channels of an image from the last axis to axis 1."""
    return (0, rank - 1, *range(1, rank - 1))
