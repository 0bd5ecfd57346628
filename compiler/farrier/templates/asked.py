"""Calls of a template's methods. A template is third-party code: any exception that it raises
becomes an error that names the template."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from farrier.errors import FarrierError
from farrier.templates.errors import TemplateError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A template, called for one kernel. In error messages, `named` is the name of the template,
    `kernel` the name of the kernel, and `hint` the advice to the user."""

    named: str
    kernel: str
    hint: str

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        """Return the result of `ask()`, a function that calls the template. If it raises any
        exception, raise a TemplateError instead, in which `what` describes the information that was
        requested."""
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
