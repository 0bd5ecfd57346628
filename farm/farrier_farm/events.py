"""What a watcher of a job sees: progress events and state changes, in order, with ids."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from farrier.errors import UsageError
from farrier_farm.jobs import Jobs
from farrier_farm.states import State

_ID = re.compile(r"\d{1,18}-\d{1,18}")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEvent:
    """`id` grows ("<ms>-<n>") and serves as Last-Event-ID. `data["kind"]` is one of
    `farrier.progress`'s kinds, or "state" with `data["state"]`, `data["attempt"]` and, where there
    is one, `data["error"]`, or `data["reason"]` why the job is in the queue."""

    id: str
    data: dict[str, Any]

    @property
    def last(self) -> bool:
        """Whether no event follows: the change to a final state."""
        return self.data["kind"] == "state" and State(self.data["state"]).final


class Events:
    """The newest `events_kept` events of a job, until a week after its end."""

    def __init__(self, jobs: Jobs) -> None:
        self._leases = jobs.leases

    def read(
        self, job_id: str, after: str = "", wait_s: float = 0.0, limit: int = 500
    ) -> list[StoredEvent]:
        """Events after the id `after` ("" for the oldest kept), waiting up to `wait_s` for the
        first. Raises NotFoundError for an unknown job, UsageError for a malformed id."""
        if after and not _ID.fullmatch(after):
            raise UsageError(f"{after!r} is no id of an event")
        if self._leases.state(job_id) is None:
            raise self._leases.unknown(job_id)
        found = self._leases.events(job_id, after, wait_s, limit)
        return [StoredEvent(event_id, json.loads(text)) for event_id, text in found]
