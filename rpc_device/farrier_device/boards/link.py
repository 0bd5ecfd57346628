"""Operations over a line: each is sent until its answer arrives, and executed exactly once."""

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
    """The board has not answered any of the repeated requests."""


class RefusedError(Exception):
    """The program on the board has refused an operation; the message contains its reason."""


class Link:
    """A line with numbered frames. A request whose frame or answer is lost or damaged is sent again
    with the same number, and the board answers it again without executing it twice."""

    def __init__(
        self,
        line: Line,
        glance: Callable[[], None] = lambda: None,
        *,
        first_s: float = _FIRST_S,
        quiet_s: float = _QUIET_S,
    ) -> None:
        """Create a link over a line. `glance` is called repeatedly while an answer is awaited; if
        it raises an exception, the wait ends. A request is sent again after `first_s` seconds, or
        when the line has been quiet for `quiet_s` after a damaged frame."""
        self._first_s = first_s
        self._quiet_s = quiet_s
        self.line = line
        self.retries = 0
        self._glance = glance
        self._reader = Reader()
        # Another agent's last number, which the board may still have, is not to be met.
        self._numbers = itertools.count(secrets.randbelow(NO_NUMBER // 2))

    def ask(self, operation: str, body: bytes = b"", runs_s: float = 0.0) -> bytes:
        """Return the body of the answer to an operation that takes the board at most `runs_s`
        seconds. Raises SilentError, RefusedError, LineGoneError."""
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
        """Return the answer to a request; None if no answer arrives before the deadline, or if a
        damaged frame has arrived and the line is quiet now."""
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
        raise RefusedError(
            f"the board answered the operation {operation!r} with {answer.operation!r}"
        )
    return answer.body
