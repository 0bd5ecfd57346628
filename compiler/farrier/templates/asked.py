"""Call the methods of a template, which is third-party code: any exception that it raises becomes
an error that names the template.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from farrier.errors import FarrierError
from farrier.templates.errors import TemplateError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A template and a `kernel` to pass to its methods. Errors refer to the template as `named` and
    carry the `hint`."""

    named: str
    kernel: str
    hint: str

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, which calls the template; `what` describes the call in
        errors. Raises TemplateError for any exception."""
        try:
            return ask()
        except Exception as error:
            raise self.error(f"fails to say {what}: {described(error)}") from error

    def error(self, why: str) -> TemplateError:
        """Return an error with the reason `why` the template fails for this kernel."""
        return TemplateError(f"{self.named}, asked about {self.kernel}, {why}", hint=self.hint)


def described(error: Exception) -> str:
    """Return the text by which an error message describes an exception that a template raised."""
    return str(error) if isinstance(error, FarrierError) else f"{type(error).__name__}: {error}"
