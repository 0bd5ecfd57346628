"""The error of a broken template."""

from __future__ import annotations

from typing import ClassVar

from farrier.errors import CompilerError, UsageError


class TemplateError(CompilerError):
    """A template of another package broke a rule of its protocol. The message names the package,
    the entry point, the template, the kernel and the reason. As the error of one candidate it
    rejects that candidate and ends nothing."""

    code: ClassVar[str] = "template"
    exit_code: ClassVar[int] = UsageError.exit_code
    http_status: ClassVar[int] = UsageError.http_status
