"""The indexed fields of a tuning record, as arguments for `records.lua`."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from typing import Any

from farrier.records import TuningRecord

SHARED = "farrier:records:"
"""The prefix of the keys of the shared store."""
PRIVATE = "farrier:private-records:"
"""The prefix of the keys of users' private stores; the user's name and a colon follow it."""
STORES = "farrier:record-stores"
"""The key of the set that contains the prefix of each store."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordEntry:
    """The JSON line of a tuning record, and the fields of the record that the indexes and counts
    use."""

    line: str
    task: str
    target: str  # its fingerprint
    device_class: str
    rule: str
    created: float
    failed: bool

    @classmethod
    def of(cls, record: TuningRecord) -> RecordEntry:
        return cls(
            line=record.to_line(),
            task=record.task,
            target=record.fingerprint,
            device_class=record.device_class,
            rule=record.rule,
            created=record.created,
            failed=not record.samples_ns,
        )

    @classmethod
    def of_line(cls, line: str) -> RecordEntry:
        """Return the entry for the line of a record that another version wrote. Fields that cannot
        be read from the line are empty."""
        raw: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            raw = json.loads(line)
        fields = raw if isinstance(raw, dict) else {}

        def text(name: str) -> str:
            value = fields.get(name)
            return value if isinstance(value, str) else ""

        created = fields.get("created")
        return cls(
            line=line,
            task=text("task"),
            target=text("fingerprint"),
            device_class=text("device_class"),
            rule=text("rule"),
            created=created if isinstance(created, float) and math.isfinite(created) else 0.0,
            failed=not fields.get("samples_ns"),
        )

    @property
    def words(self) -> list[str]:
        digest = hashlib.sha256(self.line.encode()).hexdigest()[:32]
        return [
            *(digest, self.line, place(self.task, self.target)),
            *(kind(self.device_class, self.rule), json.dumps([self.device_class])),
            *(self.task, self.target, repr(self.created), str(int(self.failed))),
        ]


def place(task: str, target: str) -> str:
    """Return the key of the index of a task's records on a target: the JSON text of `[task,
    target]`, since both names may contain any character."""
    return json.dumps([task, target])


def kind(device_class: str, rule: str) -> str:
    """Return the key under which the records of a device class and scheduling rule are counted: the
    JSON text of `[device_class, rule]`."""
    return json.dumps([device_class, rule])
