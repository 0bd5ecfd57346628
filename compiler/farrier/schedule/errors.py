"""ScheduleError: raised where a primitive cannot be applied to a loop nest."""

from __future__ import annotations

from typing import ClassVar

from farrier.errors import CompilerError
from farrier.ir.loop import Function
from farrier.ir.printer import print_ir


class ScheduleError(CompilerError):
    """An attempt to apply a primitive that would change the result of a loop nest.

    The message names the primitive, the loop or buffer and the conflicting facts, and shows the
    nest.
    """

    code: ClassVar[str] = "schedule"

    def __init__(self, primitive: str, reason: str, function: Function) -> None:
        super().__init__(f"{primitive}: {reason}\n\n{print_ir(function)}")
        self.primitive = primitive
        self.reason = reason
