"""Axes that must have an element, because an operator takes one from them by its position.

An open axis may be 0 long. Most operators have no elements then, and sums of none a value; but a
position in an axis of none names nothing. Compiled code must not read there, and ONNX Runtime ends
such a call with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.ir.dim import Dim, Extent, Symbol, maximum, minimum, product, substitute
from farrier.ir.graph import Attribute
from farrier.ir.types import TensorType
from farrier.ops.operator import axis_attr, int_attr

# An axis that elements are taken from, and how many are.
Taken: TypeAlias = tuple[Extent, Extent]
_Types: TypeAlias = Sequence[TensorType | None]
_Rule: TypeAlias = Callable[
    [TensorType, TensorType | None, TensorType, Mapping[str, Attribute]], Iterator[Taken]
]


def shortfall(
    op: str, types: _Types, kinds: Sequence[TensorType], attrs: Mapping[str, Attribute]
) -> Iterator[tuple[Extent, Extent]]:
    """For each axis that may have too few elements: its extent, and what must be 1, which is 0
    where an element is taken from it and it has none."""
    rule, x = _RULES.get(op), types[0] if types else None
    if rule is None or x is None:
        return
    for extent, count in rule(x, types[1] if len(types) > 1 else None, kinds[0], attrs):
        enough = maximum(minimum(extent, 1), 1 - minimum(count, 1))
        if enough != 1 and not _is_taken_of_itself(extent, count):
            yield extent, enough


def _is_taken_of_itself(extent: Extent, count: Extent) -> bool:
    """Whether nothing is taken where the axis is 0, as it is a factor of what is."""
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
    """The last axis of the indices holds positions, one for each of as many axes."""
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
    """An axis of the result is made of the same axis."""
    if attrs.get("mode", "constant") == "constant":
        return
    for extent, made in zip(x.shape, out.shape, strict=True):
        if extent != made:
            yield extent, made


def _sampled(
    x: TensorType, indices: TensorType | None, out: TensorType, attrs: Mapping[str, Attribute]
) -> Iterator[Taken]:
    """Points of images, wherever they are."""
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
