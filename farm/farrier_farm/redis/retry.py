"""The limits on waiting for Redis: the time, the number of waiters, and the time of a request."""

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
    """The limits on retries. If Redis refuses the connection or hangs up, a command is tried again
    after each of the `pauses_s`. It fails after `silences` tries without an answer within
    `answer_s`."""

    answer_s: float  # It exceeds the time of every blocking read.
    silences: int
    pauses_s: tuple[float, ...]


PATIENT = Patience(answer_s=30.0, silences=7, pauses_s=_PAUSES_S)
"""Of roles that work: Redis may stand still for minutes, and nothing is lost."""

PROMPT = Patience(answer_s=2.0, silences=2, pauses_s=_PAUSES_S)
"""Of a server whose users wait for the answer."""

PROBE = Patience(answer_s=2.0, silences=1, pauses_s=())
"""Of who asks whether Redis answers at all."""


class RequestTime:
    """The time within which a server's request has to progress: a piece of its body is read, or a
    piece of its answer is sent."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Note progress."""
        self._ends = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raise ServiceError after the time."""
        if time.monotonic() > self._ends:
            raise ServiceError(
                f"the request has run for {self._seconds:g} s without an answer, and may not run "
                "for longer",
                hint="ask for less at once; FARRIER_REQUEST_S of the server raises the limit",
            )


_request: contextvars.ContextVar[RequestTime | None] = contextvars.ContextVar(
    "request", default=None
)


@contextlib.contextmanager
def request_time(seconds: float) -> Iterator[RequestTime]:
    """Return a context in which each command to Redis, also of the threads that it starts, raises
    ServiceError once the time is over. A thread cannot be stopped from outside, but everything that
    a route repeats uses Redis."""
    of_request = RequestTime(seconds)
    token = _request.set(of_request)
    try:
        yield of_request
    finally:
        _request.reset(token)


def check_request() -> None:
    """Raise ServiceError if the present request has run for too long."""
    of_request = _request.get()
    if of_request is not None:
        of_request.check()


class Breaker:
    """A circuit breaker (M. Nygard, Release It!). After a call without an answer, only one caller
    at a time keeps trying, and all others are refused at once instead of waiting in vain."""

    def __init__(self) -> None:
        self._failure: ServiceError | None = None  # None while Redis answers.
        self._asking = threading.Lock()

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Return a context for one call, whose ServiceError means that Redis did not answer. Raises
        the error of the last call if another caller is trying."""
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
