"""Locate the fields of a protobuf message.

A message is a sequence of fields, each a varint of 8 * number + wire type and a value. The value of
wire type 2 is a varint of the length, and the bytes of a string or another message
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, overload

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # Wire types; ONNX messages have no groups.
_MAX_SHIFT = 63  # The shift of a varint's last byte.


class Field(NamedTuple):
    """The offsets in a message of a field's start, its value's start, and its end."""

    number: int
    kind: int
    start: int
    value: int
    end: int


class Readable(Protocol):
    """Bytes that can be indexed and sliced: in memory, or in a file that is read on access."""

    @overload
    def __getitem__(self, index: int, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> bytes | memoryview: ...


class MalformedError(Exception):
    """Error: the bytes are not a valid protobuf message."""


def fields(view: Readable, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in `view[start:end]`. Raises MalformedError."""
    at = start
    while at < end:
        tag, value = varint(view, at, end)
        kind = tag & 7
        if kind == VARINT:
            _, after = varint(view, value, end)
        elif kind == BYTES:
            length, value = varint(view, value, end)
            after = value + length
        elif kind in (FIXED64, FIXED32):
            after = value + (8 if kind == FIXED64 else 4)
        else:
            raise MalformedError
        if after > end:
            raise MalformedError
        yield Field(tag >> 3, kind, at, value, after)
        at = after


def varint(view: Readable, at: int, end: int) -> tuple[int, int]:
    """Read a varint, seven bits per byte with the lowest first. Return its value and the offset
    after it. Raises MalformedError."""
    number = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        if at >= end:
            break
        byte = view[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise MalformedError


def header(number: int, length: int) -> bytes:
    """Return the bytes that precede a field's value: tag and length."""
    written = bytearray()
    for left in (number << 3 | BYTES, length):
        while left >= 0x80:
            written.append(left & 0x7F | 0x80)
            left >>= 7
        written.append(left)
    return bytes(written)


def text(raw: bytes | memoryview) -> str:
    """Decode a string's value. Raises MalformedError if it is not UTF-8."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise MalformedError from None
