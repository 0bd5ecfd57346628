"""TemplateError: raised where a template is broken."""

from __future__ import annotations

from typing import ClassVar

from farrier.errors import CompilerError, UsageError


class TemplateError(CompilerError):
    """An error: a template of another package violated the template protocol.

    The message names the package, the entry point, the template, the kernel and the reason. Raised
    for one candidate, it rejects that candidate and does not end the search.
    """

    code: ClassVar[str] = "template"
    exit_code: ClassVar[int] = UsageError.exit_code
    http_status: ClassVar[int] = UsageError.http_status
