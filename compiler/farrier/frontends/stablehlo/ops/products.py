"""Rules of matrix products and convolutions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from farrier.frontends.builder.images import first_axes
from farrier.frontends.stablehlo.scope import Scope
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.dim import product
from farrier.ir.types import DType
from farrier.ops import NotSupported

_LIST = re.compile(r"(\w+) = \[([\d, ]*)\]")
_CONV = re.compile(r"\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]")


def numbers_in(text: str) -> dict[str, list[int]]:
    """Parse the lists of integers in an attribute such as `lhs_contracting_dimensions = [1]`, by
    name."""
    return {
        name: [int(n) for n in items.split(",") if n.strip()] for name, items in _LIST.findall(text)
    }


@hlo("stablehlo.dot_general")
def dot_general(s: Scope, x: str, y: str) -> str:
    dims = numbers_in(s.attr("dot_dimension_numbers").text)
    contracted = [dims.get(f"{side}_contracting_dimensions", []) for side in ("lhs", "rhs")]
    batch = [dims.get(f"{side}_batching_dimensions", []) for side in ("lhs", "rhs")]
    return _product(s, (x, y), batch, contracted)


@hlo("stablehlo.dot")
def dot(s: Scope, x: str, y: str) -> str:
    return _product(s, (x, y), [[], []], [[s.rank(x) - 1], [0]])


def _product(
    s: Scope,
    operands: tuple[str, str],
    batch: Sequence[Sequence[int]],
    contracted: Sequence[Sequence[int]],
) -> str:
    """Return a general dot product. Its axes are the batch axes, then the free axes of the first
    operand, then those of the second.

    It is computed by a MatMul of operands whose contracted axes are merged into one; free axes are
    merged as well if there are batch axes. If transposes can be avoided by a product of the
    operands in reverse order, as in the second product of attention, the operands are swapped.
    """
    sides = [
        _Side(s.cast(x, s.result_dtype), tuple(batch[side]), tuple(contracted[side]))
        for side, x in enumerate(operands)
    ]
    is_last = [s.rank(side.x) - 1 in side.contracted for side in sides]
    if is_last != [False, True]:
        return _multiplied(s, sides[0], sides[1])
    y = _multiplied(s, sides[1], sides[0])
    heads, columns = len(sides[0].batch), len(sides[1].free(s))
    order = [*range(heads), *range(heads + columns, s.rank(y)), *range(heads, heads + columns)]
    return s.transpose(y, order)


class _Side(NamedTuple):
    """An operand of a general dot product, with its batch axes and its contracted axes."""

    x: str
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    def free(self, s: Scope) -> list[int]:
        """Return the free axes, which are neither batch axes nor contracted."""
        taken = {*self.batch, *self.contracted}
        return [axis for axis in range(s.rank(self.x)) if axis not in taken]


def _multiplied(s: Scope, left: _Side, right: _Side) -> str:
    free = left.free(s), right.free(s)
    x = s.transpose(left.x, [*left.batch, *free[0], *left.contracted])
    y = s.transpose(right.x, [*right.batch, *right.contracted, *free[1]])
    count = len(left.batch)
    heads, rows = s.shape(x)[:count], s.shape(x)[count : count + len(free[0])]
    depth = product(s.shape(x)[count + len(free[0]) :])
    columns = s.shape(y)[s.rank(y) - len(free[1]) :]
    inner = rows if not count and rows else (product(rows),)
    wide = s.reshape(x, [*heads, *inner, depth])
    tall = s.reshape(y, [*heads, depth, product(columns)])
    return s.reshape(s.node("MatMul", wide, tall), [*heads, *rows, *columns])


class _Order(NamedTuple):
    """The order of the axes of a tensor of a convolution. `first` and `second` are the positions of
    two named axes (such as batch and feature), and `spatial` those of the spatial axes."""

    first: int
    second: int
    spatial: tuple[int, ...]

    @property
    def axes(self) -> list[int]:
        """The permutation from the tensor's own axis order to Farrier's."""
        return [self.first, self.second, *self.spatial]

    @property
    def inverse(self) -> list[int]:
        """The permutation from Farrier's axis order to the tensor's own."""
        return sorted(range(len(self.axes)), key=lambda place: self.axes[place])


def _orders(text: str) -> tuple[_Order, _Order, _Order]:
    match = _CONV.search(text)
    if match is None:
        raise NotSupported(f"a convolution of {text}")
    names = [[name.strip() for name in part.split(",")] for part in match.groups()]
    return (
        _order(names[0], "b", "f"),
        _order(names[1], "o", "i"),
        _order(names[2], "b", "f"),
    )


def _order(names: Sequence[str], first: str, second: str) -> _Order:
    spatial = tuple(names.index(str(place)) for place in range(len(names) - 2))
    return _Order(names.index(first), names.index(second), spatial)


@hlo("stablehlo.convolution")
def convolution(s: Scope, x: str, w: str) -> str:
    dtype = s.result_dtype
    images, weights, results = _orders(s.attr("dimension_numbers").text)
    rank = len(images.spatial)
    ones = [1] * rank
    if s.attr("batch_group_count", 1) != 1 or any(s.ints_of("window_reversal", [0])):
        raise NotSupported("a convolution with groups of batches, or a reversed window")
    pads = s.ints_of("padding", [0] * (2 * rank))
    low, high = pads[0::2], pads[1::2]
    image = _channels_first(s, s.cast(x, dtype), images)
    weight = s.transpose(s.cast(w, dtype), weights.axes)
    image, low, high = _stretched(s, image, s.ints_of("lhs_dilation", ones), low, high)
    y = s.node(
        "Conv",
        image,
        weight,
        strides=tuple(s.ints_of("window_strides", ones)),
        dilations=tuple(s.ints_of("rhs_dilation", ones)),
        pads=(*low, *high),
        group=s.attr("feature_group_count", 1),
    )
    if results.axes == list(first_axes(rank + 2)):
        return s.b.channels_last(y)
    return s.transpose(y, results.inverse)


def _channels_first(s: Scope, x: str, order: _Order) -> str:
    if order.axes == list(first_axes(s.rank(x))):
        return s.b.channels_first(x)
    return s.transpose(x, order.axes)


def _stretched(
    s: Scope, x: str, dilations: Sequence[int], low: list[int], high: list[int]
) -> tuple[str, list[int], list[int]]:
    """Insert zeros between the elements of an image, as in gradients of convolutions and in
    transposed convolutions, and crop the image where the padding is negative. Return the image and
    the remaining padding."""
    rank = len(dilations)
    if any(factor != 1 for factor in dilations):
        eye = [1] * rank
        channels = s.shape(x)[1]
        weights = s.node(
            "ConstantOfShape", s.vector([channels, 1, *eye]), dtype=s.dtype(x).value, value=1.0
        )
        x = s.node("ConvTranspose", x, weights, strides=tuple(dilations), group=channels)
    if all(each >= 0 for each in (*low, *high)):
        return x, low, high
    zero = s.scalar(0.0, s.dtype(x)) if s.dtype(x).is_float else s.scalar(0, DType.I32)
    cut = [[min(each, 0) for each in side] for side in (low, high)]
    x = s.node("Pad", x, [0, 0, *cut[0], 0, 0, *cut[1]], zero)
    return x, [max(each, 0) for each in low], [max(each, 0) for each in high]
