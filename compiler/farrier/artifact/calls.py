"""The table of kernel calls of a compiled model, in order, with memory addresses, for the profiler.

The entry point makes the same calls itself; code that runs a model does not read the table.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import NamedTuple

from farrier.errors import ArtifactError
from farrier_device import codec


class CallArgument(NamedTuple):
    """The address of a kernel's argument: `offset` bytes into argument `position` of the entry.
    `nbytes` is the size that the kernel may access, 0 for temporary memory of the kernel's own."""

    position: int
    offset: int
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a kernel.

    `function` is a symbol of the library, `task` the key of the kernel in the manifest; `origin`
    names the ONNX nodes that the call computes. `runs` is the number of executions in one run of
    the model, if that is known; within a loop, the arguments are those of the first iteration.
    """

    function: str
    task: str
    origin: str
    arguments: tuple[CallArgument, ...]
    runs: int = 1

    @property
    def nbytes(self) -> int:
        """The minimum number of bytes that the call must move: each argument once."""
        return sum(argument.nbytes for argument in self.arguments)


def to_json(calls: Iterable[CallRecord]) -> str:
    """Return the table as JSON, one call per line."""
    lines = (json.dumps(codec.encode(call)) for call in calls)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def from_json(text: str) -> tuple[CallRecord, ...]:
    """Parse the table that `to_json` returns. Raises ArtifactError for any other text."""
    try:
        return codec.loads(tuple[CallRecord, ...], text, name="calls")
    except ValueError as error:
        raise ArtifactError(f"the artifact's table of calls is damaged: {error}") from error
