"""What a watcher of a job sees: progress events and state changes, in order, with ids."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEvent:
    """`id` grows ("<ms>-<n>") and serves as Last-Event-ID. `data["kind"]` is one of
    `farrier.progress`'s kinds, or "state" with `data["state"]` and, where there is one, `data["error"]`.
    """

    id: str
    data: dict[str, Any]

    @property
    def last(self) -> bool:
        """Whether no event follows: the change to a final state."""
        raise NotImplementedError


class Events:
    def read(
        self, job_id: str, after: str = "", wait_s: float = 0.0, limit: int = 500
    ) -> list[StoredEvent]:
        """Events after the id `after` ("" for the oldest kept), waiting up to `wait_s` for the first.
        Raises NotFoundError for an unknown job, UsageError for a malformed id."""
        raise NotImplementedError
