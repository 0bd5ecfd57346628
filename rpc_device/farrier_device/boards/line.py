"""The protocol of a line to a board: bytes in both directions, some of which may be lost."""

from __future__ import annotations

from typing import Protocol


class LineGoneError(Exception):
    """The line has lost its other end: the board was unplugged, or the emulator has ended."""


class Line(Protocol):
    """A line to a board."""

    @property
    def name(self) -> str:
        """The name of the board or port, for messages."""
        ...

    @property
    def bytes_a_second(self) -> float:
        """The highest rate of the line in each direction; infinity if it is not limited."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes to the board. Raises LineGoneError."""
        ...

    def read(self, within_s: float) -> bytes:
        """Return the bytes that have arrived, or b"" if none arrive within `within_s` seconds.
        Raises LineGoneError."""
        ...

    def reset(self) -> None:
        """Restart the board, if the line is able to. Raises LineGoneError."""
        ...

    def close(self) -> None:
        """Close the line; a second call does nothing."""
        ...
