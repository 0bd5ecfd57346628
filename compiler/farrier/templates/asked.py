"""What a template says of a kernel. It is a stranger's code: whatever it raises comes out as an
error that names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from farrier.errors import FarrierError
from farrier.templates.errors import TemplateError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A template, `named` so in errors, asked about a `kernel`; `hint` is the way out of them."""

    named: str
    kernel: str
    hint: str

    def answer(self, what: str, ask: Callable[[], T]) -> T:
        """What `ask` gives, which has the template say `what`. Raises TemplateError for whatever it
        raises."""
        try:
            return ask()
        except Exception as error:
            raise self.error(f"fails to say {what}: {described(error)}") from error

    def error(self, why: str) -> TemplateError:
        """What is wrong with the template, for this kernel."""
        return TemplateError(f"{self.named}, asked about {self.kernel}, {why}", hint=self.hint)


def described(error: Exception) -> str:
    """What a template has raised."""
    return str(error) if isinstance(error, FarrierError) else f"{type(error).__name__}: {error}"
