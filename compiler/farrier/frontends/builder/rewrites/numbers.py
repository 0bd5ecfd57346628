"""Arithmetic on sizes and positions that are either known when compiling or computed at run
time."""

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
Operand: TypeAlias = Number | Sequence[Number]  # Also the name of any value.


def name_of(operand: Operand, builder: Builder) -> str:
    """Return the name of an operand: an extent becomes an i64 constant, and a sequence of extents
    an i64 vector."""
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
    """Arithmetic on i64 scalars, as an object to call: `numbers("Add", shape[0], name)` returns the
    name of the result. A result that can be folded is a constant, whose extent `known` returns.

    If folding depends on the answer to a comparison of symbols that is open (`Undecided`), the
    result is computed at run time.
    """

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
        """Return the value as an extent. If it is known only at run time, a check is added that
        ends a run with a value outside of 0 to `bound` (None: any size); `usual` is as for
        `Builder.sizes`."""
        extent = self.known(value)
        if extent is not None:
            return extent
        (size,) = to_extents(self.builder.sizes(name_of(value, self.builder), (bound,), usual))
        return size

    def require(self, value: Number, wanted: Extent) -> None:
        """Add a check that ends a run in which `value` differs from `wanted`, unless they are equal
        when compiling."""
        if self.known(value) != wanted:
            self.builder.require(value, (wanted,))
