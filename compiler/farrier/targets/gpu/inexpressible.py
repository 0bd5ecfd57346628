"""The error of a renderer for a kernel that its language does not express."""

from __future__ import annotations

from farrier.errors import CompilerError


class InexpressibleError(CompilerError):
    """A renderer cannot express a kernel, for a reason that is a clause. The host runs it then."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="--target host compiles for the processor")
        self.reason = reason
