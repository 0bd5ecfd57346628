"""Position rules: the axes from which operators read elements by position.

An open axis may have length 0. A position on it does not exist then, so a model must not be called
with that length where elements are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from farrier.ir.dim import Extent, product
from farrier.ir.types import TensorType
from farrier.ops.operator import Attrs, axis_attr, int_attr

# The extent of an axis, and the number of elements that are read from it.
Taken: TypeAlias = tuple[Extent, Extent]
# A function of the types of inputs 0 and 1 and of the result, and of the attributes.
PositionRule: TypeAlias = Callable[
    [TensorType, TensorType | None, TensorType, Attrs], Iterator[Taken]
]


def along_axis(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the axis `axis`: each index is a position on it."""
    assert indices is not None
    yield x.shape[axis_attr(attrs, x.rank)], product(indices.shape)


def by_rows(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the axes of GatherND: the last axis of the indices holds a position for each."""
    assert indices is not None
    first = int_attr(attrs, "batch_dims", 0)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    for extent in x.shape[first : first + depth]:
        yield extent, product(indices.shape[:-1])


def best_of_axis(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the axis `axis`: each element of the result is a position on it."""
    yield x.shape[axis_attr(attrs, x.rank)], product(out.shape)


def changed_axes(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the axes that change their length: each axis of the result reads the same axis."""
    if attrs.get("mode", "constant") == "constant":
        return
    for extent, count in zip(x.shape, out.shape, strict=True):
        if extent != count:
            yield extent, count


def sampled_points(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the axes of images, which are read at points whose values decide the positions."""
    for extent in x.shape[2:]:
        yield extent, product(out.shape)
