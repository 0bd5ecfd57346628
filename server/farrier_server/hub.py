"""Watchers of event streams: one reader a server, however many they are.

While somebody watches, one task reads all streams that are watched, in one command, and hands what
comes to each watcher. What lies before that a watcher reads for itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

from farrier.errors import FarrierError
from farrier_farm.jobs.events import Events, StoredEvent

READ_S = 0.2  # of one read; a stream that is watched for the first time joins the next one
QUEUED = 1000  # events that wait for a slow watcher; of more it reads for itself
PAGE = 500  # events of one read

_log = logging.getLogger(__name__)


class Watcher:
    """One who watches a stream; `seen` is the id of the last event that it has got."""

    def __init__(self, stream: str, seen: str) -> None:
        self.stream = stream
        self.seen = seen
        self.is_behind = True  # there may be stored events that were not handed over
        self._waiting: list[StoredEvent] = []
        self._news = asyncio.Event()
        self._is_over = False

    def hand_over(self, events: Sequence[StoredEvent]) -> None:
        self._waiting += events
        if len(self._waiting) > QUEUED:
            self._waiting.clear()
            self.is_behind = True
        self._news.set()

    def end(self) -> None:
        """Nothing will be handed over from now on."""
        self._is_over = True
        self._news.set()

    async def next(self, silence_s: float) -> list[StoredEvent] | None:
        """What was handed over, or is within `silence_s`; None at the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(silence_s):
                await self._news.wait()
        self._news.clear()
        new = [event for event in self._waiting if _numbers(event.id) > _numbers(self.seen)]
        self._waiting.clear()
        if new:
            self.seen = new[-1].id
        return None if self._is_over and not new else new


class Hub:
    """For the tasks of one event loop. Ends all watching soon after `stopping` is set."""

    def __init__(self, events: Events, stopping: asyncio.Event) -> None:
        self._events = events
        self._stopping = stopping
        self._positions: dict[str, str] = {}  # the last event that was read of each stream
        self._watchers: dict[str, set[Watcher]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def watch(
        self, stream: str, after: str, silence_s: float
    ) -> AsyncIterator[list[StoredEvent]]:
        """Each event of a stream after the id `after`, in order and once, some at a time; an empty
        list after `silence_s` without one. Ends when the server does, or Redis is away."""
        with self._registered(stream, after) as watcher, contextlib.suppress(FarrierError):
            if stream not in self._positions:
                newest = await asyncio.to_thread(self._events.newest, stream)
                self._positions.setdefault(stream, newest)
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read())
            while True:
                while watcher.is_behind:
                    if events := await self._stored(watcher):
                        yield events
                found = await watcher.next(silence_s)
                if found is None:
                    return
                if found or not watcher.is_behind:
                    yield found

    async def _stored(self, watcher: Watcher) -> list[StoredEvent]:
        """A page of what is stored after the last event that the watcher has. What comes meanwhile
        is handed over, so it is behind no more where the page has room."""
        watcher.is_behind = False
        position = {watcher.stream: watcher.seen}
        found = await asyncio.to_thread(self._events.follow, position, 0.0, PAGE)
        events = found.get(watcher.stream, [])
        watcher.is_behind |= len(events) == PAGE
        if events:
            watcher.seen = events[-1].id
        return events

    @contextlib.contextmanager
    def _registered(self, stream: str, after: str) -> Iterator[Watcher]:
        watcher = Watcher(stream, after or "0-0")
        watchers = self._watchers.setdefault(stream, set())
        watchers.add(watcher)
        try:
            yield watcher
        finally:
            watchers.discard(watcher)
            if not watchers:
                self._watchers.pop(stream, None)
                self._positions.pop(stream, None)

    async def _read(self) -> None:
        """Until nobody watches, the server stops, or Redis is away: watchers connect again then,
        and are told why."""
        try:
            while not self._stopping.is_set():
                if not self._positions:
                    return
                found = await asyncio.to_thread(self._events.follow, dict(self._positions), READ_S)
                for stream in found.keys() & self._positions.keys():
                    self._positions[stream] = found[stream][-1].id
                    for watcher in self._watchers[stream]:
                        watcher.hand_over(found[stream])
        except FarrierError as error:
            _log.warning("event streams end: %s", error)
        except Exception:
            _log.exception("event streams end")
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end()


def _numbers(event_id: str) -> tuple[int, ...]:
    return tuple(map(int, event_id.split("-")))
