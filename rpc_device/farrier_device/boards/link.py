"""Operations over a line: each is sent until its answer comes, and done once."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable

from farrier_device.boards.frames import DAMAGED, NO_NUMBER, Frame, Reader, encode
from farrier_device.boards.line import Line

_TRIES = 8
_FIRST_S = 0.5  # Between two tries, beyond the time that the line itself takes.
_LONGER = 8  # Pauses double, up to that multiple of the first.
_QUIET_S = 0.03  # Bytes that follow each other have shorter gaps, those of USB among them.
_GLANCE_S = 0.2  # How often to look whether the batch was cancelled.
_REFUSED = "E"


class SilentError(Exception):
    """The board has not answered, however often it was asked."""


class RefusedError(Exception):
    """The program on the board refuses an operation, and says why."""


class Link:
    """A line with the numbers of its frames. A frame that is lost or damaged on the way there or
    back is sent again under its number, and the board answers it again without doing it twice."""

    def __init__(
        self,
        line: Line,
        glance: Callable[[], None] = lambda: None,
        *,
        first_s: float = _FIRST_S,
        quiet_s: float = _QUIET_S,
    ) -> None:
        """`glance` is called repeatedly during a wait for an answer; an exception of it ends the
        wait. A question is sent again after `first_s`, or when the line has been quiet for
        `quiet_s` after a damaged frame."""
        self._first_s = first_s
        self._quiet_s = quiet_s
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
        pause, longest_s = self._first_s, _LONGER * self._first_s
        for attempt in itertools.count(1):
            self.retries += attempt > 1
            self.line.write(data)
            on_the_way = 2 * len(data) / self.line.bytes_a_second
            answer = self._awaited(question, time.monotonic() + pause + on_the_way)
            if answer is not None:
                return _accepted(answer, operation)
            # A long call is asked after while it runs: the board answers when it is through.
            if attempt >= _TRIES and time.monotonic() - begin > runs_s + longest_s:
                break
            pause = min(2 * pause, longest_s)
        raise SilentError(f"{self.line.name} does not answer")

    def _awaited(self, question: Frame, deadline: float) -> Frame | None:
        """Return the answer to a question; None if nothing comes in time, or what came was damaged
        and the line is quiet now."""
        is_damaged = False
        while (left := deadline - time.monotonic()) > 0:
            self._glance()
            data = self.line.read(min(left, self._quiet_s if is_damaged else _GLANCE_S))
            if is_damaged and not data:
                return None
            for frame in self._reader.frames(data):
                if frame is None or frame.operation == DAMAGED:
                    is_damaged = True
                elif frame.number == question.number:
                    return frame
        return None


def _accepted(answer: Frame, operation: str) -> bytes:
    if answer.operation == _REFUSED:
        raise RefusedError(answer.body.decode(errors="replace"))
    if answer.operation != operation:
        raise RefusedError(f"it answers {operation!r} with {answer.operation!r}")
    return answer.body
