"""Operations over a line: each is sent until its answer comes, and done once."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable

from farrier_device.boards.frames import DAMAGED, NO_NUMBER, Frame, Reader, encode
from farrier_device.boards.line import Line

_TRIES = 8
_FIRST_S, _LONGEST_S = 0.5, 4.0  # Between two tries, beyond the time that the line itself takes.
_GLANCE_S = 0.2  # How often to look whether the batch was cancelled.
_REFUSED = "E"


class SilentError(Exception):
    """The board has not answered, however often it was asked."""


class RefusedError(Exception):
    """The program on the board refuses an operation, and says why."""


class Link:
    """A line with the numbers of its frames. A frame that is lost or damaged on the way there or
    back is sent again under its number, and the board answers it again without doing it twice."""

    def __init__(self, line: Line, glance: Callable[[], None] = lambda: None) -> None:
        """`glance` is called again and again while an answer is awaited; what it raises ends the
        wait."""
        self.line = line
        self.retries = 0
        self._glance = glance
        self._reader = Reader()
        # Another agent's last number, which the board may still have, is not to be met.
        self._numbers = itertools.count(secrets.randbelow(NO_NUMBER // 2))

    def ask(self, operation: str, body: bytes = b"", runs_s: float = 0.0) -> bytes:
        """Return the body of the answer to an operation that takes the board `runs_s` at most.
        Raises SilentError, RefusedError, LineGoneError."""
        question = Frame(next(self._numbers), operation, body)
        data = encode(question)
        begin = time.monotonic()
        pause = _FIRST_S
        for attempt in itertools.count(1):
            self.retries += attempt > 1
            self.line.write(data)
            on_the_way = 2 * len(data) / self.line.bytes_a_second
            answer = self._awaited(question, time.monotonic() + pause + on_the_way)
            if answer is not None:
                return _accepted(answer, operation)
            # A long call is asked after while it runs: the board answers when it is through.
            if attempt >= _TRIES and time.monotonic() - begin > runs_s + _LONGEST_S:
                break
            pause = min(2 * pause, _LONGEST_S)
        raise SilentError(f"{self.line.name} does not answer")

    def _awaited(self, question: Frame, deadline: float) -> Frame | None:
        """Return the answer to a question; None if something came damaged, or nothing in time."""
        while (left := deadline - time.monotonic()) > 0:
            self._glance()
            for frame in self._reader.frames(self.line.read(min(left, _GLANCE_S))):
                if frame is None or frame.operation == DAMAGED:
                    return None
                if frame.number == question.number:
                    return frame
        return None


def _accepted(answer: Frame, operation: str) -> bytes:
    if answer.operation == _REFUSED:
        raise RefusedError(answer.body.decode(errors="replace"))
    if answer.operation != operation:
        raise RefusedError(f"it answers {operation!r} with {answer.operation!r}")
    return answer.body
