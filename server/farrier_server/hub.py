"""The distribution of events to the watchers of event streams. Each server has one reader,
independently of the number of watchers.

While streams are watched, one task reads the new events of all of them with a single command, and
hands them to the watchers. Older events are read by each watcher itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence

from farrier.errors import FarrierError
from farrier_farm.jobs.events import Events, StoredEvent

READ_S = 0.2  # The time of one read; a stream that gets its first watcher joins the next read.
QUEUED = 1000  # The most events that wait for a slow watcher, who reads the others from Redis.
PAGE = 500  # The most events of one read.

_log = logging.getLogger(__name__)


class Watcher:
    """A watcher of one stream; `seen` is the id of the last event that the watcher received."""

    def __init__(self, stream: str, seen: str) -> None:
        self.stream = stream
        self.seen = seen
        self.is_behind = True  # Redis may have events that were not handed over.
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
        """End the stream: the watcher receives no more events."""
        self._is_over = True
        self._news.set()

    async def next(self, silence_s: float) -> list[StoredEvent] | None:
        """Return the events that were handed to this watcher since the last call, or wait for them
        for at most `silence_s`. Return None at the end of the stream."""
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
    """The distributor of new events to the watchers of streams, within one event loop. All streams
    end soon after `stopping` is set."""

    def __init__(self, events: Events, stopping: asyncio.Event) -> None:
        self._events = events
        self._stopping = stopping
        self._positions: dict[str, str] = {}  # The id of the last event read, by stream.
        self._watchers: dict[str, set[Watcher]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def watch(
        self, stream: str, after: str, silence_s: float
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield each event of a stream after the id `after`, in order and exactly once, as lists of
        events; yield an empty list after `silence_s` without an event. Ends when the server stops
        or Redis is unavailable."""
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
                arrived = await watcher.next(silence_s)
                if arrived is None:
                    return
                if arrived or not watcher.is_behind:
                    yield arrived

    async def _stored(self, watcher: Watcher) -> list[StoredEvent]:
        """Return up to `PAGE` stored events that follow the last event which the watcher has
        received. The watcher is registered before, so newer events reach it through the hub; the
        page has to be followed by another only if it is full."""
        watcher.is_behind = False
        position = {watcher.stream: watcher.seen}
        streams = await asyncio.to_thread(self._events.follow, position, 0.0, PAGE)
        events = streams.get(watcher.stream, [])
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
        """Read new events until no stream is watched, the server stops, or Redis is unavailable.
        Clients then connect again and receive the reason."""
        try:
            while not self._stopping.is_set():
                if not self._positions:
                    return
                streams = await asyncio.to_thread(
                    self._events.follow, dict(self._positions), READ_S
                )
                for stream in streams.keys() & self._positions.keys():
                    self._positions[stream] = streams[stream][-1].id
                    for watcher in self._watchers[stream]:
                        watcher.hand_over(streams[stream])
        except FarrierError as error:
            _log.warning("the event streams are closed: %s", error)
        except Exception:
            _log.exception("the event streams are closed")
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end()


def _numbers(event_id: str) -> tuple[int, ...]:
    return tuple(map(int, event_id.split("-")))
