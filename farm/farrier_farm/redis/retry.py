"""The limits on waits for Redis: on the time of a command, on the number of waiting callers, and on
the total time of an HTTP request."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
import time
from collections.abc import Iterator

from farrier.errors import ServiceError
from farrier_farm.errors import StoreFullError

# A restart of Redis takes less than the sum of these pauses.
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """The limits on the retries of a command. If Redis refuses the connection or closes it, the
    command is retried after each of the `pauses_s`. The command fails after `silences` attempts
    without an answer within `answer_s`."""

    answer_s: float  # It exceeds the time of every blocking read.
    silences: int
    pauses_s: tuple[float, ...]


PATIENT = Patience(answer_s=30.0, silences=7, pauses_s=_PAUSES_S)
"""The limits for background processes: Redis may be unavailable for minutes without loss of
work."""

PROMPT = Patience(answer_s=2.0, silences=2, pauses_s=_PAUSES_S)
"""The limits for a server whose users wait for the answer."""

PROBE = Patience(answer_s=2.0, silences=1, pauses_s=())
"""The limits for a check whether Redis answers at all."""


class RequestTime:
    """The time within which an HTTP request has to make progress: to read a piece of its body, or
    to send a piece of its answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Restart the time limit, because the request has made progress."""
        self._ends = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raise ServiceError if the time has passed without progress."""
        if time.monotonic() > self._ends:
            raise ServiceError(
                f"the request got no answer within its time limit of {self._seconds:g} s",
                hint="request less at once, or raise the limit with FARRIER_REQUEST_S on "
                "the server",
            )


_request: contextvars.ContextVar[RequestTime | None] = contextvars.ContextVar(
    "request", default=None
)


@contextlib.contextmanager
def request_time(seconds: float) -> Iterator[RequestTime]:
    """Return a context in which each Redis command, also in threads that the context starts, raises
    ServiceError once the request has made no progress for `seconds`. A thread cannot be stopped
    from outside, but every loop of a route uses Redis."""
    of_request = RequestTime(seconds)
    token = _request.set(of_request)
    try:
        yield of_request
    finally:
        _request.reset(token)


def check_request() -> None:
    """Raise ServiceError if the present HTTP request has made no progress for too long."""
    of_request = _request.get()
    if of_request is not None:
        of_request.check()


class Breaker:
    """A circuit breaker (M. Nygard, Release It!). After a call without an answer, only one caller
    at a time tries Redis, and all others are refused at once."""

    def __init__(self) -> None:
        self._failure: ServiceError | None = None  # None while Redis answers.
        self._asking = threading.Lock()

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Return a context for a call that raises ServiceError if Redis does not answer. If another
        caller is trying Redis after a failure, raises the error of that failure at once."""
        failure = self._failure
        if failure is None:
            with self._watched():
                yield
        elif self._asking.acquire(blocking=False):
            try:
                with self._watched():
                    yield
            finally:
                self._asking.release()
        else:
            raise type(failure)(failure.message, hint=failure.hint)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except ServiceError as error:
            is_answer = isinstance(error, StoreFullError) and error.is_answer
            self._failure = None if is_answer else error
            raise
        except Exception:  # Redis has answered, although with an error.
            self._failure = None
            raise
        self._failure = None
