"""The calls of a compiled model: which kernel runs when and on what memory, for the profiler.

The entry point does the same by itself; nothing that runs a model reads this.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import NamedTuple

from farrier.errors import ArtifactError
from farrier_device import codec


class CallArgument(NamedTuple):
    """Where an argument of a kernel lies: `offset` bytes into argument `position` of the entry.

    `nbytes` is what the kernel may read or write of it, 0 for scratch memory of the kernel's own.
    """

    position: int
    offset: int
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class CallRecord:
    """One call. `function` is a symbol of the library, `task` the key of its kernel in the
    manifest; `origin` names the ONNX nodes that it computes. One run of the model makes it `runs`
    times, as far as that is known; in a loop, the arguments are those of the first iteration."""

    function: str
    task: str
    origin: str
    arguments: tuple[CallArgument, ...]
    runs: int = 1

    @property
    def nbytes(self) -> int:
        """What the call moves at least: each argument once."""
        return sum(argument.nbytes for argument in self.arguments)


def to_json(calls: Iterable[CallRecord]) -> str:
    """One call a line."""
    lines = (json.dumps(codec.encode(call)) for call in calls)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def from_json(text: str) -> tuple[CallRecord, ...]:
    """Raises ArtifactError where the text is no table of calls."""
    try:
        return codec.loads(tuple[CallRecord, ...], text, name="calls")
    except ValueError as error:
        raise ArtifactError(f"the artifact's table of calls is damaged: {error}") from error
