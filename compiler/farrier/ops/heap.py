"""A heap in a loop nest: it keeps the best of many elements, or returns them in order."""

from __future__ import annotations

from farrier.ir.dim import Extent, maximum
from farrier.ir.types import DType
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.scalar import Scalar, both, either, equal, guarded, invert, number, unequal


def ranks_before(value: Scalar, other: Scalar, largest: bool) -> Scalar:
    """Check whether an element ranks before another one, whatever their positions: NaN is the
    largest."""
    if not value.dtype.is_float:
        return value > other if largest else value < other
    if largest:
        return both(invert(value <= other), equal(other, other))
    return both(invert(value >= other), equal(value, value))


class Heap:
    """The best elements of a row: each is worse than its children, at 2i + 1 and 2i + 2.

    The order is total: NaN is greater than every number, as in ONNX Runtime's TopK, and equal to
    NaN. Comparisons of IEEE 754 alone are not an order, and a heap built on them loses elements.
    """

    def __init__(self, nest: LoopBuilder, k: Extent, dtype: DType, largest: bool) -> None:
        self._nest = nest
        self._k = k
        self._largest = largest
        room = maximum(k, 1)
        self.values: Tensor = nest.local("best", (room,), dtype)
        self.places: Tensor = nest.local("at", (room,), DType.I64)

    def improves(self, value: Scalar, worst: Scalar) -> Scalar:
        """Check whether an element at a later position ranks before `worst`."""
        return ranks_before(value, worst, self._largest)

    def ties(self, value: Scalar, other: Scalar) -> Scalar:
        """Check whether two elements have the same rank."""
        if not value.dtype.is_float:
            return equal(value, other)
        are_nan = both(unequal(value, value), unequal(other, other))
        return either(equal(value, other), are_nan)

    def offer(self, value: Scalar, place: Scalar) -> None:
        """Replace the root if the element ranks before it; ties keep the earlier element."""
        value = self._nest.let(value)
        with self._nest.if_(self.improves(value, self.values[0])):
            size = number(self._k, DType.I64)
            self.sift(value, place, number(0, DType.I64), size)

    def is_before(self, value: Scalar, place: Scalar, other: Scalar, there: Scalar) -> Scalar:
        """Check whether one element ranks before another; of equal elements the earlier does."""
        return either(self.improves(value, other), both(self.ties(value, other), place < there))

    def sift(self, value: Scalar, place: Scalar, start: Scalar, size: Scalar) -> None:
        """Insert an element at `start` of a heap of `size` elements, moving it down to its
        place."""
        nest, values, places = self._nest, self.values, self.places
        value, place = nest.let(value), nest.let(place)
        hole = nest.variable(start, "hole")
        child = nest.variable(hole.value * 2 + 1, "child")
        is_placed = nest.variable(number(False, DType.BOOL), "is_placed")
        with nest.while_(both(child.value < size, equal(is_placed.value, False))):
            sibling = child.value + 1
            worse = self.is_before(
                values[child.value], places[child.value], values[sibling], places[sibling]
            )
            with nest.if_(guarded(sibling < size, worse)):
                child.value = sibling
            there = nest.let(child.value)
            with nest.if_(self.is_before(value, place, values[there], places[there])):
                values[hole.value], places[hole.value] = values[there], places[there]
                hole.value = there
                child.value = there * 2 + 1
            with nest.else_():
                is_placed.value = True
        values[hole.value], places[hole.value] = value, place
