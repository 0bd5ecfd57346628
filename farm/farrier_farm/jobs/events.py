"""The events that watchers receive, in order and with ids: the progress and state changes of a job,
or the events of the whole farm."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from farrier.errors import UsageError
from farrier_farm.events.farm_events import NEWS
from farrier_farm.jobs.jobs import Jobs
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State
from farrier_farm.redis.connection import Client

_ID = re.compile(r"\d{1,18}-\d{1,18}")


@dataclasses.dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event. `id` grows with time ("<ms>-<n>") and serves as Last-Event-ID. For an event of a
    job, `data["kind"]` is a kind of `farrier.progress`, or "state": then `data` contains `state`,
    `attempt`, and `error` or, for a job that went back to the queue, `reason`. For an event of the
    farm, `data["kind"]` is a kind of `farm_events.py`."""

    id: str
    data: dict[str, Any]

    @property
    def last(self) -> bool:
        """Return whether the event is the last one of its job, because it is the change to a final
        state."""
        return self.data["kind"] == "state" and State(self.data["state"]).final


FARM = ""  # The name of the farm's stream; any other name is a job's id.


class Events:
    """The events of each job and of the farm. About the newest `events_kept` events of a job are
    kept, until a week after its end."""

    def __init__(self, client: Client, jobs: Jobs) -> None:
        self._client = client
        self._jobs = jobs

    def read(
        self, job_id: str, after: str = "", wait_s: float = 0.0, limit: int = 500
    ) -> list[StoredEvent]:
        """Return the job's events after the id `after` ("" for the oldest stored event), waiting up
        to `wait_s` for the first. Raises NotFoundError for an unknown job, UsageError for a
        malformed id."""
        check_id(after)
        leases = self._jobs.leases_of(job_id)
        if leases.state(job_id) is None:
            raise leases.unknown(job_id)
        stored = leases.events(job_id, after, wait_s, limit)
        return [StoredEvent(event_id, json.loads(text)) for event_id, text in stored]

    def log(
        self, job_id: str, *, after: str = "", limit: int = 500, newest_first: bool = False
    ) -> tuple[list[StoredEvent], str]:
        """Return the job's events except trials, which are stored separately, and the `after` of
        the next page, "" on the last page. For a job that an older version ran, the trials are
        filtered out. Raises NotFoundError, UsageError as `read` does."""
        check_id(after)
        if self._jobs.leases_of(job_id).state(job_id) is None:
            raise self._jobs.leases_of(job_id).unknown(job_id)
        verb, bounds = "XRANGE", [f"({after}" if after else "-", "+"]
        if newest_first:
            verb, bounds = "XREVRANGE", [f"({after}" if after else "+", "-"]
        log = f"{_prefix(job_id)}:log:{job_id}"
        entries = self._client.command(verb, log, *bounds, "COUNT", limit + 1)
        events = [StoredEvent(entry, json.loads(fields["data"])) for entry, fields in entries]
        if not events and not self._client.command("EXISTS", log):
            entries = self._client.command(verb, _key(job_id), *bounds)
            stored = [StoredEvent(entry, json.loads(fields["data"])) for entry, fields in entries]
            events = [event for event in stored if event.data["kind"] != "trials-measured"]
        page = events[:limit]
        return page, page[-1].id if len(events) > limit else ""

    def newest(self, stream: str) -> str:
        """Return the id of the newest event of a stream; "0-0" for an empty stream."""
        entries = self._client.command("XREVRANGE", _key(stream), "+", "-", "COUNT", 1)
        return str(entries[0][0]) if entries else "0-0"

    def follow(
        self, positions: Mapping[str, str], wait_s: float, limit: int = 500
    ) -> dict[str, list[StoredEvent]]:
        """Return the new events of several streams, by stream; `positions` is the id of the last
        event that was read of each. A single command reads all streams, and waits up to `wait_s`
        for the first event."""
        names = {_key(stream): stream for stream in positions}
        if not names:
            return {}
        wait = ("BLOCK", max(1, int(wait_s * 1000))) if wait_s else ()
        streams = self._client.command(
            "XREAD", "COUNT", limit, *wait, "STREAMS", *names, *positions.values()
        )
        return {
            names[key]: [StoredEvent(entry, json.loads(fields["data"])) for entry, fields in new]
            for key, new in streams or []
        }


def check_id(text: str) -> None:
    """Raise UsageError for a text that is neither an event id nor empty."""
    if text and not _ID.fullmatch(text):
        raise UsageError(f"{text!r} is not the id of an event")


def _key(stream: str) -> str:
    return NEWS if stream == FARM else f"{_prefix(stream)}:events:{stream}"


def _prefix(job_id: str) -> str:
    return f"farrier:{JobKind.of(job_id).items}"
