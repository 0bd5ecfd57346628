"""A binary heap in a loop nest, which holds the best elements of a row and can sort them."""

from __future__ import annotations

from farrier.ir.dim import Extent, maximum
from farrier.ir.types import DType
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.scalar import Scalar, both, either, equal, guarded, invert, number, unequal


def ranks_before(value: Scalar, other: Scalar, largest: bool) -> Scalar:
    """Check whether `value` is better than `other`: greater if `largest`, else less. NaN is the
    greatest.
    """
    if not value.dtype.is_float:
        return value > other if largest else value < other
    if largest:
        return both(invert(value <= other), equal(other, other))
    return both(invert(value >= other), equal(value, value))


class Heap:
    """A heap of the best elements of a row. Each entry is worse than its children, at 2i + 1 and 2i
    + 2, so the worst is the root.

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
        """Check whether an element is better than `worst`, the value at the root. The element's
        position in the row is assumed to be later, so an equal element is not better.
        """
        return ranks_before(value, worst, self._largest)

    def ties(self, value: Scalar, other: Scalar) -> Scalar:
        """Check whether two elements are equal in the order of the heap. NaN is equal to NaN."""
        if not value.dtype.is_float:
            return equal(value, other)
        are_nan = both(unequal(value, value), unequal(other, other))
        return either(equal(value, other), are_nan)

    def offer(self, value: Scalar, place: Scalar) -> None:
        """Offer an element to the heap: it replaces the root if it ranks strictly before the root.
        Of equal elements, the earlier one therefore stays."""
        value = self._nest.let(value)
        with self._nest.if_(self.improves(value, self.values[0])):
            size = number(self._k, DType.I64)
            self.sift(value, place, number(0, DType.I64), size)

    def is_before(self, value: Scalar, place: Scalar, other: Scalar, there: Scalar) -> Scalar:
        """Check whether `value`, at position `place` of the row, ranks before `other`, at position
        `there`. Of equal elements the one at the earlier position does.
        """
        return either(self.improves(value, other), both(self.ties(value, other), place < there))

    def sift(self, value: Scalar, place: Scalar, start: Scalar, size: Scalar) -> None:
        """Insert an element into the subtree whose root is at heap index `start`, in a heap of
        `size` elements. The element is moved down until it is worse than its children. `place` is
        the element's position in the row."""
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
