"""Arithmetic on sizes and positions that may be known, or computed when the model runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from farrier.frontends.builder.symbolic import ints
from farrier.ir.dim import Extent, Undecided
from farrier.ops.operator import to_extents

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder

Number: TypeAlias = Extent | str  # An extent, or the name of an i64 scalar.


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """The arithmetic: `numbers("Add", shape[0], name)` returns the name of an i64 scalar.

    It folds what it can. Where a result depends on which value a symbol has, nodes compute it when
    the model runs."""

    builder: Builder

    def __call__(self, op: str, *operands: Number) -> str:
        names = [self.name(operand) for operand in operands]
        try:
            return self.builder.add(op, *names)
        except Undecided as undecided:
            self.builder.defers(undecided.question)
            return self.builder.add(op, *map(self.builder.unknown, names))

    def name(self, value: Number) -> str:
        """Return the name of a scalar of the value."""
        return value if isinstance(value, str) else self.builder.constant(ints(value))

    def vector(self, values: Sequence[Number]) -> str:
        """Return the name of an i64 vector of the values, as operators read sizes and positions."""
        extents = [value for value in values if not isinstance(value, str)]
        if len(extents) == len(values):
            return self.builder.constant(ints(extents))
        single = self.builder.constant(ints([1]))
        parts = [self.builder.add("Reshape", self.name(value), single) for value in values]
        return self.builder.add("Concat", *parts, axis=0)

    def known(self, value: Number) -> Extent | None:
        """Return the value, or None if it is known only at run time."""
        if not isinstance(value, str):
            return value
        data = self.builder.data(value)
        return None if data is None else to_extents(data)[0]

    def size(self, value: Number, bound: Extent | None = None, usual: int | None = None) -> Extent:
        """Return the value as an extent. If it is known only at run time, a run ends unless it is 0
        to `bound` (None: as much as there is room for); `usual` is as for `Builder.sizes`."""
        extent = self.known(value)
        if extent is not None:
            return extent
        (size,) = to_extents(self.builder.sizes(self.name(value), (bound,), usual))
        return size

    def require(self, value: Number, wanted: Extent) -> None:
        """Add a check that ends a run in which the value is another, unless they are equal for
        certain."""
        if self.known(value) != wanted:
            self.builder.require(self.name(value), (wanted,))
