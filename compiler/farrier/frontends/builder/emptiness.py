"""Axes that must not be empty, because an operator reads elements from them by position.

An open axis may have length 0. Most operators have an empty result then, and reductions have a
value, but a position on an empty axis does not exist. Compiled code must not read there; ONNX
Runtime ends such a call with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.ir.dim import Dim, Extent, Symbol, maximum, minimum, product, substitute
from farrier.ir.graph import Attribute
from farrier.ir.types import TensorType
from farrier.ops.operator import axis_attr, int_attr

# The extent of an axis, and the number of elements that are read from it.
Taken: TypeAlias = tuple[Extent, Extent]
_Types: TypeAlias = Sequence[TensorType | None]
_Rule: TypeAlias = Callable[
    [TensorType, TensorType | None, TensorType, Mapping[str, Attribute]], Iterator[Taken]
]


def shortfall(
    op: str, types: _Types, kinds: Sequence[TensorType], attrs: Mapping[str, Attribute]
) -> Iterator[tuple[Extent, Extent]]:
    """Yield (extent, enough) for each axis that may have too few elements. `enough` is 0 if
    elements are read from an axis that has none, and must be 1."""
    rule, x = _RULES.get(op), types[0] if types else None
    if rule is None or x is None:
        return
    for extent, count in rule(x, types[1] if len(types) > 1 else None, kinds[0], attrs):
        enough = maximum(minimum(extent, 1), 1 - minimum(count, 1))
        if enough != 1 and not _is_taken_of_itself(extent, count):
            yield extent, enough


def _is_taken_of_itself(extent: Extent, count: Extent) -> bool:
    """Check whether nothing is read from an axis of length 0, because `count` is a multiple of its
    extent."""
    match extent:
        case Dim(terms=(((Symbol() as symbol,), _),)):
            return substitute(count, {symbol: 0}) == 0
    return False


def _along(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Mapping[str, Attribute]
) -> Iterator[Taken]:
    assert indices is not None
    yield x.shape[axis_attr(attrs, x.rank)], product(indices.shape)


def _by_rows(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Mapping[str, Attribute]
) -> Iterator[Taken]:
    """Yield the axes of GatherND: the last axis of the indices holds a position for each."""
    assert indices is not None
    first = int_attr(attrs, "batch_dims", 0)
    depth = indices.shape[-1]
    assert isinstance(depth, int)
    for extent in x.shape[first : first + depth]:
        yield extent, product(indices.shape[:-1])


def _best(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Mapping[str, Attribute]
) -> Iterator[Taken]:
    yield x.shape[axis_attr(attrs, x.rank)], product(out.shape)


def _each_axis(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Mapping[str, Attribute]
) -> Iterator[Taken]:
    """Yield the axes that change their length: each axis of the result reads the same axis."""
    if attrs.get("mode", "constant") == "constant":
        return
    for extent, count in zip(x.shape, out.shape, strict=True):
        if extent != count:
            yield extent, count


def _sampled(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Mapping[str, Attribute]
) -> Iterator[Taken]:
    """Yield the axes of images, which are read at points whose values decide the positions."""
    for extent in x.shape[2:]:
        yield extent, product(out.shape)


_RULES: Mapping[str, _Rule] = {
    "Gather": _along,
    "GatherElements": _along,
    "ScatterElements": _along,
    "GatherND": _by_rows,
    "ScatterND": _by_rows,
    "ArgMax": _best,
    "ArgMin": _best,
    "Pad": _each_axis,
    "Resize": _each_axis,
    "GridSample": _sampled,
    "RoiAlign": _sampled,
}
