"""The log format that all roles share: text for people, or one JSON object per line for programs.

The subject of a log line (`job`, `batch`, `device`, `request`) is set at the start of the work on
it:

    with logs.about(job=lease.item):
        log.warning("it goes back")        → {…, "message": "it goes back", "job": "01a1…"}

This module needs only the standard library, because boards use it as well.
"""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TextIO

FORMS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_about: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar(
    "about", default=MappingProxyType({})
)


def set_up(role: str, form: str = "text", stream: TextIO | None = None, **always: str) -> None:
    """Send this process's log records, from level INFO on, to `stream` (default: standard error),
    in one of the formats `FORMS`. The fields `always`, such as an agent's device, are added to each
    JSON object."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    text = logging.Formatter(TEXT)
    handler.setFormatter(_Json({"role": role, **always}) if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


@contextlib.contextmanager
def about(**ids: str) -> Iterator[None]:
    """Return a context in which the log lines of this thread or task, and of tasks that it starts,
    have these subjects. A thread that is started in the context has no subject."""
    before = _about.get()
    _about.set({**before, **{name: value for name, value in ids.items() if value}})
    try:
        yield
    finally:
        _about.set(before)  # Resetting by a token would fail if another task closes the generator.


class _Json(logging.Formatter):
    """A formatter that writes each record as one line of JSON, even if the message contains line
    breaks."""

    def __init__(self, always: Mapping[str, str]) -> None:
        super().__init__()
        self._always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        fields = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._always,
            **_about.get(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)
