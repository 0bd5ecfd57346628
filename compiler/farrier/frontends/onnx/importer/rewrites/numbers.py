"""Arithmetic on sizes and positions that may be known, or computed when the model runs."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from farrier.frontends.builder.symbolic import ints
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ir.dim import Extent, Undecided
from farrier.ops.operator import to_extents

Number: TypeAlias = Extent | str  # known, or the name of an i64 scalar


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """Makes nodes on i64 scalars. What is known is computed now; what depends on which of its
    values a symbol has, when the model runs."""

    scope: ImportScope

    def name(self, value: Number) -> str:
        return value if isinstance(value, str) else self.scope.constant(ints(value))

    def __call__(self, op: str, *operands: Number) -> str:
        names = [self.name(operand) for operand in operands]
        try:
            return self.scope.add(op, *names)
        except Undecided as undecided:
            self.scope.defers(undecided.question)
            return self.scope.add(op, *map(self.scope.unknown, names))

    def known(self, value: Number) -> Extent | None:
        """The value where it is known."""
        if not isinstance(value, str):
            return value
        data = self.scope.data(value)
        return None if data is None else to_extents(data)[0]

    def size(self, value: Number, bound: Extent | None = None, usual: int | None = None) -> Extent:
        """The value as an extent; where it is known only at run time, it must be 0 to `bound`
        (None: as much as there is room for); `usual` is as for `ImportScope.sizes`."""
        known = self.known(value)
        if known is not None:
            return known
        (size,) = to_extents(self.scope.sizes(self.name(value), (bound,), usual))
        return size

    def require(self, value: Number, wanted: Extent) -> None:
        """The run ends where the value is another; nothing is left to check of equal ones."""
        if self.known(value) != wanted:
            self.scope.require(self.name(value), (wanted,))
