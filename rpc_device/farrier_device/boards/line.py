"""The protocol of a line to a board: bytes each way, some of which may be lost."""

from __future__ import annotations

from typing import Protocol


class LineGoneError(Exception):
    """The line has no other end: a board that is unplugged, or an emulator that has ended."""


class Line(Protocol):
    """A line to a board."""

    @property
    def name(self) -> str:
        """The name of the other end, for messages."""
        ...

    @property
    def bytes_a_second(self) -> float:
        """The most that it carries each way; infinity if nothing bounds it."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes. Raises LineGoneError."""
        ...

    def read(self, within_s: float) -> bytes:
        """Return the bytes that have come, b"" if none come in that time. Raises LineGoneError."""
        ...

    def reset(self) -> None:
        """Restart the board, as far as the line can. Raises LineGoneError."""
        ...

    def close(self) -> None:
        """Give it up; a second call does nothing."""
        ...
