"""How long Redis is waited for, and by how many at once."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
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
