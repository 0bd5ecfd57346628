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
Operand: TypeAlias = Number | Sequence[Number]  # Or the name of any value.


def name_of(operand: Operand, builder: Builder) -> str:
    """Return the name of an operand: that of an i64 constant for an extent, and that of an i64
    vector for a sequence."""
    if isinstance(operand, str):
        return operand
    if not isinstance(operand, Sequence):
        return builder.constant(ints(operand))
    if not any(isinstance(number, str) for number in operand):
        return builder.constant(ints(list(operand)))
    parts = [builder.add("Reshape", number, [1]) for number in operand]
    return builder.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """The arithmetic: `numbers("Add", shape[0], name)` returns the name of an i64 scalar.

    It folds what it can. Where a result depends on which value a symbol has, nodes compute it when
    the model runs."""

    builder: Builder

    def __call__(self, op: str, *operands: Number) -> str:
        names = [name_of(operand, self.builder) for operand in operands]
        try:
            return self.builder.add(op, *names)
        except Undecided as undecided:
            self.builder.defers(undecided.question)
            return self.builder.add(op, *map(self.builder.unknown, names))

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
        (size,) = to_extents(self.builder.sizes(name_of(value, self.builder), (bound,), usual))
        return size

    def require(self, value: Number, wanted: Extent) -> None:
        """Add a check that ends a run in which the value is another, unless they are equal for
        certain."""
        if self.known(value) != wanted:
            self.builder.require(value, (wanted,))
