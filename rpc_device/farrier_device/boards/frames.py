"""The frames on a line that may lose or change bytes, in the format of
`targets/bare/firmware/frames.h`.

A frame consists of a number (4 bytes), an operation (1), a body, and the CRC-32 of the preceding
bytes (4); numbers are little endian. COBS (Cheshire and Baker, 1999) encodes the frame without zero
bytes, and a zero is sent before and after it, so that a reader that is out of step finds the next
frame at the next zero.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

NO_NUMBER = 0xFFFFFFFF
"""The number of a frame that answers none."""
DAMAGED = "N"
"""The operation of a frame that says that one came damaged."""
_HEAD = struct.Struct("<IB")
_SUM = struct.Struct("<I")
_MOST_RUN = 254  # The bytes between two zeros that one byte of COBS stands for.
_MOST_BYTES = 1 << 16  # Bytes without a zero: the longest frame has some thousand.


class Frame(NamedTuple):
    """A request, or the answer with the number of its request."""

    number: int
    operation: str
    body: bytes


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame on the line, with the zeros around it."""
    content = _HEAD.pack(frame.number, ord(frame.operation)) + frame.body
    return b"\0" + _without_zeros(content + _SUM.pack(zlib.crc32(content))) + b"\0"


class Reader:
    """A decoder that takes bytes as they arrive on the line, and returns the frames in them."""

    def __init__(self) -> None:
        self._left = b""

    def frames(self, data: bytes) -> Iterator[Frame | None]:
        """Yield the frames that are completed by `data`; None for a damaged frame."""
        *whole, self._left = (self._left + data).split(b"\0")
        if len(self._left) > _MOST_BYTES:
            self._left = b""
        yield from map(_decoded, filter(None, whole))


def _without_zeros(content: bytes) -> bytes:
    encoded = bytearray()
    for run in content.split(b"\0"):
        for at in range(0, len(run) - len(run) % _MOST_RUN, _MOST_RUN):
            encoded.append(_MOST_RUN + 1)
            encoded += run[at : at + _MOST_RUN]
        rest = run[len(run) - len(run) % _MOST_RUN :]
        encoded.append(len(rest) + 1)
        encoded += rest
    return bytes(encoded)


def _decoded(data: bytes) -> Frame | None:
    content = _with_zeros(data)
    if content is None or len(content) < _HEAD.size + _SUM.size:
        return None
    content, checksum = content[: -_SUM.size], content[-_SUM.size :]
    if _SUM.pack(zlib.crc32(content)) != checksum:
        return None
    number, operation = _HEAD.unpack_from(content)
    return Frame(number, chr(operation), content[_HEAD.size :])


def _with_zeros(data: bytes) -> bytes | None:
    """Return the bytes that COBS data encodes; None if the data is incomplete."""
    content = bytearray()
    at = 0
    while at < len(data):
        end = at + data[at]
        if end > len(data):
            return None
        content += data[at + 1 : end]
        if data[at] != _MOST_RUN + 1 and end < len(data):
            content.append(0)
        at = end
    return bytes(content)
