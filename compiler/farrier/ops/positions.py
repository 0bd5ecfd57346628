"""Position rules: the axes whose elements an operator reads by position.

An axis of symbolic length may have length 0, where no position exists. A model must then reject
inputs with length 0. Each rule yields (length of the axis, number of reads); without any reads the
length may be 0.
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
    """Yield the length of the axis named by the attribute `axis`, with the number of indices: each
    of them reads one position along this axis."""
    assert indices is not None
    yield x.shape[axis_attr(attrs, x.rank)], product(indices.shape)


def by_rows(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the length of each axis that GatherND addresses, with the number of index tuples. A
    tuple is a row along the last axis of the indices, and has one position for each addressed
    axis."""
    assert indices is not None
    first = int_attr(attrs, "batch_dims", 0)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    for extent in x.shape[first : first + depth]:
        yield extent, product(indices.shape[:-1])


def best_of_axis(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the length of the axis named by the attribute `axis`, with the number of output
    elements: each output of ArgMax or ArgMin is a position along this axis."""
    yield x.shape[axis_attr(attrs, x.rank)], product(out.shape)


def changed_axes(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the length of each axis that a Pad changes, if the padding is read from the input
    (modes other than constant)."""
    if attrs.get("mode", "constant") == "constant":
        return
    for extent, count in zip(x.shape, out.shape, strict=True):
        if extent != count:
            yield extent, count


def sampled_points(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Attrs
) -> Iterator[Taken]:
    """Yield the lengths of the spatial axes of the images, which are read at coordinates that an
    input contains."""
    for extent in x.shape[2:]:
        yield extent, product(out.shape)
