"""The limits of each user's requests in one API process.

Each request belongs to one of three pools, so that no kind of request exhausts the capacity of the
others: event streams, transfers (uploads and downloads of artifacts), and all other requests. In
each pool a user may have a limited number of requests in progress, and the rate of a user's
requests is limited, too. The user of the installation's own token (`DEFAULT`) may fill nine tenths
of a pool; the rest is reserved for other users.

Routes wait for Redis and disks in a small pool of threads. A user may occupy at most `TURNS` of
these threads at a time; further requests of the user wait. The same limit holds for all requests
without a user together.

All counts are per process: each API process has its own pools and limits. The counts for all
processes together are in Redis (`farrier_farm.access.quotas`).
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import enum
import logging
import math
import re
import time
from collections.abc import Callable, Mapping

from farrier.errors import FarrierError, QueueFullError, TooManyRequestsError
from farrier_farm.access.users import DEFAULT
from farrier_farm.settings import Settings, variable_of
from farrier_server.problems import BusyError

NOBODY = ""
"""The name under which requests that need no token are counted."""
TURNS = 8  # The most threads of a user, of the 40 in which Starlette runs routes.
BURST_S = 10.0  # A user may send the requests of this time at once.
TOLD_S = 60.0  # The interval at which the log reports that a limit refuses a user's requests.

_STREAM = re.compile(r"/v1/(jobs/[^/]+/)?events")
_UPLOAD = re.compile(r"/v1/uploads/[^/]+")
_DOWNLOAD = re.compile(r"/v1/jobs/[^/]+/artifact")

_log = logging.getLogger(__name__)


class Pool(enum.StrEnum):
    """The pools of requests. The value is the pool's name in metrics and messages."""

    REQUESTS = "requests"
    STREAMS = "streams"
    TRANSFERS = "transfers"

    @classmethod
    def of(cls, method: str, path: str) -> Pool:
        """Return the pool of a request, from its method and path."""
        if method == "GET" and _STREAM.fullmatch(path):
            return cls.STREAMS
        if method == "PATCH" and _UPLOAD.fullmatch(path):
            return cls.TRANSFERS
        if method == "GET" and _DOWNLOAD.fullmatch(path):
            return cls.TRANSFERS
        return cls.REQUESTS


# The capacity of each pool in one process. A stream or a transfer occupies a connection, of which
# there are at most 4,096 (`connections.MOST`), and little else.
PLACES = {Pool.REQUESTS: 1000, Pool.STREAMS: 1000, Pool.TRANSFERS: 1000}
RATE = "request-rate"
CONNECTIONS = "connections"
_CALLED = {
    Pool.REQUESTS: "requests",
    Pool.STREAMS: "event streams",
    Pool.TRANSFERS: "uploads and downloads",
}
# Requests end in milliseconds; streams and transfers last until their clients end them.
_RETRY_S = {Pool.REQUESTS: 1, Pool.STREAMS: 5, Pool.TRANSFERS: 5}
_FIELDS = {
    Pool.REQUESTS: "requests_of_user",
    Pool.STREAMS: "streams_of_user",
    Pool.TRANSFERS: "transfers_of_user",
}


@dataclasses.dataclass(slots=True)
class _Use:
    """The requests of a user that are in progress in this process, and the state of the user's
    token bucket."""

    tokens: float  # The requests that may come at once, as of `at`.
    at: float  # monotonic
    places: collections.Counter[Pool] = dataclasses.field(default_factory=collections.Counter)
    turns: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(TURNS))


class Limits:
    """The limits of users, for the tasks of one event loop. `note` may be called, and the counts
    for metrics may be read, from any thread."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._users: dict[str, _Use] = {}
        self._told: dict[tuple[str, str], float] = {}
        self.taken: collections.Counter[Pool] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        """The number of refused requests, by the name of the limit."""

    def enter(self, user: str, pool: Pool) -> Callable[[], None]:
        """Count a request as in progress, and return the function to call once when the request
        ends. Raises TooManyRequestsError if the user has too many requests in the pool, BusyError
        if the pool is full."""
        use = self._use(user)
        self._check_share(user, use, pool)
        if self.taken[pool] >= PLACES[pool]:
            raise BusyError(
                f"{PLACES[pool]} {_CALLED[pool]} are in progress, the maximum",
                retry_after_s=_RETRY_S[pool],
            )
        self._check_rate(user, use)
        use.places[pool] += 1
        self.taken[pool] += 1

        def leave() -> None:
            use.places[pool] -= 1
            self.taken[pool] -= 1

        return leave

    def turn(self, user: str) -> asyncio.Semaphore:
        """Return the semaphore that limits the number of threads of a user. A route holds it while
        it runs."""
        return self._use(user).turns

    def most(self) -> Mapping[Pool, int]:
        """Return, for each pool, the largest number of requests that a single user has in
        progress."""
        uses = list(self._users.values())
        return {pool: max((use.places[pool] for use in uses), default=0) for pool in Pool}

    def note(self, user: str, error: FarrierError) -> None:
        """Count a refused request of a user, and log the refusals from time to time. `error` may
        come from the limits of this process or from the limits in Redis."""
        match error:
            case TooManyRequestsError():
                limit = error.limit
            case QueueFullError():
                limit = "queued-jobs"
            case _:
                return
        self.refused[limit] += 1
        now = self._clock()
        if now >= self._told.get((user, limit), -math.inf) + TOLD_S:
            self._told[user, limit] = now
            _log.warning("requests of %s are refused: %s", user, error.message)

    def _use(self, user: str) -> _Use:
        use = self._users.get(user)
        if use is None:
            use = self._users[user] = _Use(self._burst, self._clock())
        return use

    @property
    def _burst(self) -> float:
        return max(1.0, self._settings.request_rate_of_user * BURST_S)

    def _check_share(self, user: str, use: _Use, pool: Pool) -> None:
        places, field = PLACES[pool], _FIELDS[pool]
        share = getattr(self._settings, field)
        if user == DEFAULT:
            share, way_out = places - places // 10, "the installation's token may not have more"
        else:
            way_out = f"the limit is {variable_of(field)}"
        if 0 < share <= use.places[pool]:
            raise TooManyRequestsError(
                f"{use.places[pool]} {_CALLED[pool]} of {user} are in progress, the maximum",
                hint=f"try again in {_RETRY_S[pool]} s, or end some of them; {way_out}",
                retry_after_s=_RETRY_S[pool],
                limit=pool,
            )

    def _check_rate(self, user: str, use: _Use) -> None:
        """Take a token from the user's token bucket, which is refilled at the permitted rate.
        Raises TooManyRequestsError if the bucket is empty."""
        rate = self._settings.request_rate_of_user
        if user == DEFAULT or not rate:
            return
        now = self._clock()
        use.tokens = min(self._burst, use.tokens + (now - use.at) * rate)
        use.at = now
        if use.tokens < 1:
            wait_s = math.ceil((1 - use.tokens) / rate)
            raise TooManyRequestsError(
                f"{user} has exceeded {rate:g} requests a second for some time",
                hint=f"try again in {wait_s} s; the limit is {variable_of('request_rate_of_user')}",
                retry_after_s=wait_s,
                limit=RATE,
            )
        use.tokens -= 1
