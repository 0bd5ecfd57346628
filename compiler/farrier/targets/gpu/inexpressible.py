"""The error of a renderer for a kernel that its target language cannot express."""

from __future__ import annotations

from farrier.errors import CompilerError


class InexpressibleError(CompilerError):
    """The error of a renderer that does not support a kernel. Its message is a clause with the
    reason. Such a kernel runs on the host."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, hint="--target host compiles for the processor")
        self.reason = reason
