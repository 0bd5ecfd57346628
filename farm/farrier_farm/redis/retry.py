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

# A restart takes less than their sum.
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Patience:
    """A command is tried again where Redis refuses the connection or hangs up, after each of the
    `pauses_s`, and gives up after `silences` tries of which each had no answer for `answer_s`."""

    answer_s: float  # above every blocking read
    silences: int
    pauses_s: tuple[float, ...]


PATIENT = Patience(answer_s=30.0, silences=7, pauses_s=_PAUSES_S)
"""Of roles that work: Redis may stand still for minutes, and nothing is lost."""

PROMPT = Patience(answer_s=2.0, silences=2, pauses_s=_PAUSES_S)
"""Of a server whose users wait for the answer."""

PROBE = Patience(answer_s=2.0, silences=1, pauses_s=())
"""Of who asks whether Redis answers at all."""


class RequestTime:
    """The time in which a server's request has to show progress: a piece of its body that is read,
    or of its answer that is sent."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """It did."""
        self._ends = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raises ServiceError past the time."""
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
    """Within, and in the threads that work for what is within, each command to Redis raises
    ServiceError once the time is over: a thread cannot be ended from outside, and whatever a route
    repeats asks Redis."""
    of_request = RequestTime(seconds)
    token = _request.set(of_request)
    try:
        yield of_request
    finally:
        _request.reset(token)


def check_request() -> None:
    """Raises ServiceError where the request that this is for has run for too long."""
    of_request = _request.get()
    if of_request is not None:
        of_request.check()


class Breaker:
    """A circuit breaker (M. Nygard, Release It!): once a caller has waited in vain, one at a time
    goes on asking, and all others are refused at once, so that they do not wait in vain as well.
    """

    def __init__(self) -> None:
        self._failure: ServiceError | None = None  # none while there are answers
        self._asking = threading.Lock()

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Around one call, whose ServiceError means that there was no answer. Raises that of the
        last call where another one is asking."""
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
        except Exception:  # an answer, if no pleasant one
            self._failure = None
            raise
        self._failure = None
