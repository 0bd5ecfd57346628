"""Calls of a template, which is a stranger's code: whatever it raises becomes an error that names
it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from farrier.errors import FarrierError
from farrier.templates.errors import TemplateError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A template and a `kernel` for its methods; errors name the template as `named`, and have the
    `hint`."""

    named: str
    kernel: str
    hint: str

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        """Return the result of `ask`, which calls the template for `what`. Raises TemplateError for
        any exception."""
        try:
            return ask()
        except Exception as error:
            raise self.error(f"fails to say {what}: {described(error)}") from error

    def error(self, why: str) -> TemplateError:
        """Return an error with the reason why the template fails for this kernel."""
        return TemplateError(f"{self.named}, asked about {self.kernel}, {why}", hint=self.hint)


def described(error: Exception) -> str:
    """Return a description of an exception of a template."""
    return str(error) if isinstance(error, FarrierError) else f"{type(error).__name__}: {error}"
