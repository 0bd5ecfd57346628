"""The events of the whole farm: jobs that change their state, devices that connect or disconnect,
and warnings of the farm's processes.

farrier:events         stream of JSON objects with a `kind`; the newest `NEWS_KEPT`, roughly
farrier:events:counts  hash: `job <state>` or `device <what>` → the number of such events since
                       the farm began

    job      {job, name, owner, private, state, attempt, reason?, error?}  a job changed its state
    device   {device, what, …}                      as in a device's history
    warning  {role, message}                        a role's log has a warning

The Lua scripts that make a change also add the event, so each change has exactly one event.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import queue
import threading
from collections.abc import Mapping
from typing import Any

from farrier.errors import FarrierError
from farrier_farm.redis.connection import Client

NEWS = "farrier:events"
NEWS_KEPT = 10_000
RECENT = 20
_LOOKED_AT = 200  # The number of events searched, because events of jobs are skipped.
_LONGEST = 2000  # The most characters of a warning.


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """An event of the farm. `id` grows with time ("<ms>-<n>")."""

    id: str
    data: Mapping[str, Any]


class News:
    """The stream of the farm's events. Every method raises ServiceError if Redis is out of
    reach."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def counts(self) -> dict[str, int]:
        """Return the number of events since the farm began, by kind and state or incident, such as
        `job failed` or `device lost`."""
        numbers: dict[str, str] = self._client.command("HGETALL", f"{NEWS}:counts")
        return {name: int(count) for name, count in numbers.items()}

    def recent(self) -> list[Item]:
        """Return the newest warnings and device events, the newest first: at most `RECENT`, from
        the newest `_LOOKED_AT` events of the farm."""
        entries = self._client.command("XREVRANGE", NEWS, "+", "-", "COUNT", _LOOKED_AT)
        items = [Item(entry, json.loads(fields["data"])) for entry, fields in entries]
        return [item for item in items if item.data["kind"] != "job"][:RECENT]

    def warn(self, role: str, message: str) -> None:
        """Add a warning of a process in this role to the stream of events."""
        text = json.dumps({"kind": "warning", "role": role, "message": message})
        self._client.command("XADD", NEWS, "MAXLEN", "~", NEWS_KEPT, "*", "data", text)


class Herald(logging.Handler):
    """A log handler that adds the warnings of Farrier's own code in this process to the farm's
    events, until it is closed. A thread adds them, because logging must not wait for Redis;
    warnings that do not fit in the thread's queue are only in the log."""

    def __init__(self, news: News, role: str) -> None:
        super().__init__(logging.WARNING)
        self._news = news
        self._role = role
        self._waiting: queue.Queue[str] = queue.Queue(100)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._announce, name="herald", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("farrier"):
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(record.getMessage()[:_LONGEST])

    def close(self) -> None:
        """Wait for the warning that is being added, at most a second, because Redis may hang."""
        self._closed.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait("")
        self._thread.join(1.0)
        super().close()

    def _announce(self) -> None:
        while not self._closed.is_set():
            message = self._waiting.get()
            with contextlib.suppress(FarrierError):  # Redis is away; the log has the warning.
                if message:
                    self._news.warn(self._role, message)
