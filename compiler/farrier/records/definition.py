"""What a task is, beside the hash that its records name it by: enough to make its space again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, Protocol

MOST_CHARACTERS = 1 << 17  # of a program; a usual one has 200 to 10,000


@dataclasses.dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task on one kind of machine, by so many threads.

    `task` and `fingerprint` are as in its records. `program` is the tensor program or loop nest
    whose schedules they are, as IR in text, and `target` the fields of the `Target`, as JSON.
    """

    task: str
    fingerprint: str
    threads: int
    program: str
    target: str

    def to_line(self) -> str:
        """One JSON object without a newline."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> TaskDefinition:
        """The inverse of `to_line`. Raises ValueError that names the field at fault; whether the
        program can be read is not looked at."""
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        kinds: dict[str, type] = {"threads": int}
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(raw, dict) or sorted(raw) != sorted(names):
            raise ValueError(f"a definition has the fields {', '.join(names)}")
        for name in names:
            if type(raw[name]) is not kinds.get(name, str):
                raise ValueError(f"{name} is {_short(raw[name])}")
            if len(str(raw[name])) > MOST_CHARACTERS:
                raise ValueError(f"{name} has more than {MOST_CHARACTERS} characters")
        if raw["threads"] < 1:
            raise ValueError(f"threads is {_short(raw['threads'])}")
        return cls(**raw)


class TaskStore(Protocol):
    """Where definitions are kept, for those who learn from records.

    One that is there already is kept once. Of different ones of a task the newest counts: an older
    compiler may have made another program of it.
    """

    def define(self, definitions: Sequence[TaskDefinition]) -> None:
        """To be called before the first record of each. Raises StorageError where there is no room,
        ServiceError where the store is out of reach."""
        ...


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
