"""Represent a sequence of data-dependent length as tensors (`builder.names.Listed`).

items of equal shapes        ->  a single tensor, of which they are the slices along axis 0
items of different lengths   ->  a single tensor, in which they are concatenated, and their lengths
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from farrier.frontends.builder.names import Entry, Listed
from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import Extent, symbols
from farrier.ir.graph import Value
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops import NotSupported

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def listed(
    items: Sequence[Entry], kinds: Sequence[TensorType], own: Collection[str], builder: Builder
) -> Listed:
    """Return the items of a sequence stored in a single tensor (`Listed`), to which items of the
    types `kinds` can be appended later.

    If all items, present and later, have equal shapes, they are stacked along a new first axis. If
    their extents differ along one axis, they are concatenated along it; an extent with a symbol in
    `own` also counts as differing, because such symbols have new values in each iteration of a
    loop. Raises NotSupported for any other sequence.
    """
    tensors = [item for item in items if isinstance(item, Value)]
    every = [*(value.type for value in tensors), *kinds]
    if len(tensors) < len(items) or not every:
        raise NotSupported("a sequence, of no known length, of what are no tensors")
    first = every[0]
    if any((kind.dtype, kind.rank) != (first.dtype, first.rank) for kind in every):
        raise NotSupported("a sequence, of no known length, of tensors of several types or ranks")
    varying = [a for a in range(first.rank) if _varies([kind.shape[a] for kind in every], own)]
    if len(varying) > 1:
        raise NotSupported(
            f"a sequence, of no known length, of tensors that differ along the axes {varying}"
        )
    names = [builder.bind("", value) for value in tensors]
    if varying:
        (axis,) = varying
        whole = _joined(names, first.dtype, _with(first.shape, axis, 0), axis, builder)
        lengths = builder.constant(ints([value.type.shape[axis] for value in tensors]))
        return Listed(builder.values.names[whole], builder.values.names[lengths], axis)
    rows = [builder.add("Unsqueeze", name, [0]) for name in names]
    whole = _joined(rows, first.dtype, (0, *first.shape), 0, builder)
    return Listed(builder.values.names[whole])


def _varies(extents: Sequence[Extent], own: Collection[str]) -> bool:
    return len(set(extents)) > 1 or any(symbol.name in own for symbol in symbols(extents))


def _with(shape: Shape, axis: int, extent: Extent) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _joined(names: Sequence[str], dtype: DType, empty: Shape, axis: int, builder: Builder) -> str:
    """Return the concatenation of tensors along `axis`, or an empty tensor of shape `empty` if
    there are none."""
    if names:
        return builder.add("Concat", *names, axis=axis)
    zero = builder.constant(np.zeros((), dtype.numpy))
    return builder.add("Expand", zero, list(empty))
