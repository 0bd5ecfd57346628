"""The definition of a tuning task, from which its search space can be rebuilt; records contain only
the task's hash.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Protocol, TypeAlias

from farrier_device import codec

MOST_CHARACTERS = 1 << 17  # The limit for the text of a program; usual ones have 200 to 10,000.
_Text: TypeAlias = Annotated[str, codec.Longest(MOST_CHARACTERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task on one kind of machine, with a number of threads.

    `task` and `fingerprint` are as in the task's records. `program` is the scheduled tensor program
    or loop nest, as the text of IR, and `target` the fields of the `Target`, as JSON.
    """

    task: _Text
    fingerprint: _Text
    threads: Annotated[int, codec.Range(1, float("inf"))]
    program: _Text
    target: _Text

    def to_line(self) -> str:
        """Return the definition as one JSON object without a newline."""
        return json.dumps(codec.encode(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> TaskDefinition:
        """Parse the text that `to_line` returns, without parsing the program. Raises ValueError
        that names the invalid field."""
        return codec.loads(cls, line, unknown=codec.Unknown.REFUSED, name="definition")


class TaskStore(Protocol):
    """A store of task definitions, for cost models that learn from records.

    A definition that the store already contains is not stored again. Of several definitions of a
    task the newest counts: an older compiler may have made another program for the task.
    """

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        """Store the definition of each task, before its first record is added. Raises StorageError
        if the disk is full, ServiceError if the store cannot be reached."""
        ...
