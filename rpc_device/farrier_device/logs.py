"""One form of log for every role: text for people, or a JSON object a line for programs.

What a line is about (`job`, `batch`, `device`, `request`) is said where work on it begins:

    with logs.about(job=lease.item):
        log.warning("it goes back")        → {…, "message": "it goes back", "job": "01a1…"}

Standard library only: boards log, too.
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
    """Logs of this process from INFO on go to `stream` (standard error), in one of `FORMS`; what is
    `always` the same, as an agent's device, is in each JSON object."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    text = logging.Formatter(TEXT)
    handler.setFormatter(_Json({"role": role, **always}) if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


@contextlib.contextmanager
def about(**ids: str) -> Iterator[None]:
    """What is logged within, by this thread or task and the tasks that it starts, is about these
    things. A thread that is started within begins anew."""
    before = _about.get()
    _about.set({**before, **{name: one for name, one in ids.items() if one}})
    try:
        yield
    finally:
        _about.set(before)  # by a token it could not be, where another task closes a generator


class _Json(logging.Formatter):
    """Each record is one line, whatever its message contains."""

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
