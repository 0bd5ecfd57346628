"""What a task is, beside the hash that its records name it by: enough to make its space again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Protocol, TypeAlias

from farrier_device import codec

MOST_CHARACTERS = 1 << 17  # of a program; a usual one has 200 to 10,000
_Text: TypeAlias = Annotated[str, codec.Longest(MOST_CHARACTERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task on one kind of machine, by so many threads.

    `task` and `fingerprint` are as in its records. `program` is the tensor program or loop nest
    whose schedules they are, as IR in text, and `target` the fields of the `Target`, as JSON.
    """

    task: _Text
    fingerprint: _Text
    threads: Annotated[int, codec.Range(1, float("inf"))]
    program: _Text
    target: _Text

    def to_line(self) -> str:
        """One JSON object without a newline."""
        return json.dumps(codec.encode(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> TaskDefinition:
        """The inverse of `to_line`. Raises ValueError that names the field at fault; whether the
        program can be read is not looked at."""
        return codec.loads(cls, line, unknown=codec.Unknown.REFUSED, name="definition")


class TaskStore(Protocol):
    """Where definitions are kept, for those who learn from records.

    One that is there already is kept once. Of different ones of a task the newest counts: an older
    compiler may have made another program of it.
    """

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        """To be called before the first record of each. Raises StorageError where there is no room,
        ServiceError where the store is out of reach."""
        ...
