"""The declaration of table-lookup instructions, which look up many bytes at once in a table of 256
entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from farrier.intrinsics.declare import Writer
from farrier.ir.instr import Operand

# (writer, table, indices) -> the entries. `table` points to 256 bytes, aligned to 64; the indices
# and the entries are vectors of `TableLookup.lanes` i8.
EmitLookup: TypeAlias = Callable[[Writer, Operand, Operand], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class TableLookup:
    """A lookup instruction with a table of 256 bytes, for vectors of `lanes` indices."""

    name: str
    lanes: int
    feature: str  # Required of the target, as in `Target.required_features`.
    emit: EmitLookup
