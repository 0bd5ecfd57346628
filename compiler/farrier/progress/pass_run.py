"""The record of one run of a pass, on a graph or on the loops of a kernel."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

from farrier.errors import CompilerError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class PassRun(Generic[T]):
    """The record of one pass: its name, its wall time in seconds, and the IR before and after
    it."""

    name: str
    seconds: float
    before: T
    after: T

    @property
    def changed(self) -> bool:
        return self.after is not self.before and self.after != self.before


def cause_of(error: Exception) -> str:
    """Return the cause of a pass's failure in words."""
    return error.message if isinstance(error, CompilerError) else f"{type(error).__name__}: {error}"
