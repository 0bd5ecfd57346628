"""Takes the elements of large tensors out of a model's bytes, before protobuf makes a copy of them.

A message is a row of fields, each a varint of 8 * number + wire type and a value; the value of wire
type 2 is a varint of its length and so many bytes, of a string or of another message
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import onnx

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups are of no ONNX message
_LARGE = 4096  # bytes of a tensor; what has fewer stays in the message
_MAX_SHIFT = 63  # of a varint's last byte


class _Field(NamedTuple):
    """Where a field begins, its value, and what follows it."""

    number: int
    kind: int
    start: int
    value: int
    end: int


class _MalformedError(Exception):
    """Not a message, or not one whose parts can be told."""


def split(data: bytes) -> tuple[bytes, dict[str, memoryview]]:
    """The model's message without the elements of the graph's large initializers that are stored
    raw; and those, views of `data`, by the initializer's name. What is no model stays as it is, for
    protobuf to refuse."""
    try:
        return _split(data)
    except _MalformedError:
        return data, {}


def _split(data: bytes) -> tuple[bytes, dict[str, memoryview]]:
    view = memoryview(data)
    graph = _only(_fields(view, 0, len(view)), onnx.ModelProto.GRAPH_FIELD_NUMBER)
    if graph is None:
        return data, {}
    elements: dict[str, memoryview] = {}
    parts: list[bytes | memoryview] = []
    kept = graph.value  # what of the graph is not in `parts` begins here
    for field in _fields(view, graph.value, graph.end):
        if field.number != onnx.GraphProto.INITIALIZER_FIELD_NUMBER or field.kind != _BYTES:
            continue
        fields = list(_fields(view, field.value, field.end))
        raw = _only(fields, onnx.TensorProto.RAW_DATA_FIELD_NUMBER)
        name = _only(fields, onnx.TensorProto.NAME_FIELD_NUMBER)
        if raw is None or name is None or raw.end - raw.value < _LARGE:
            continue
        text = _text(view[name.value : name.end])
        if text in elements:
            raise _MalformedError
        elements[text] = view[raw.value : raw.end]
        rest = (view[field.value : raw.start], view[raw.end : field.end])
        parts += (view[kept : field.start], _header(field.number, sum(map(len, rest))), *rest)
        kept = field.end
    parts.append(view[kept : graph.end])
    header = _header(graph.number, sum(map(len, parts)))
    return b"".join((view[: graph.start], header, *parts, view[graph.end :])), elements


def _only(fields: Iterable[_Field], number: int) -> _Field | None:
    """The field of bytes of that number, None where there is none; of several, which protobuf
    merges, none can be taken apart."""
    found = [field for field in fields if field.number == number]
    if len(found) > 1 or any(field.kind != _BYTES for field in found):
        raise _MalformedError
    return found[0] if found else None


def _fields(view: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message in `view[start:end]`."""
    at = start
    while at < end:
        tag, value = _varint(view, at, end)
        kind = tag & 7
        if kind == _VARINT:
            _, after = _varint(view, value, end)
        elif kind == _BYTES:
            length, value = _varint(view, value, end)
            after = value + length
        elif kind in (_FIXED64, _FIXED32):
            after = value + (8 if kind == _FIXED64 else 4)
        else:
            raise _MalformedError
        if after > end:
            raise _MalformedError
        yield _Field(tag >> 3, kind, at, value, after)
        at = after


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, seven bits a byte, the lowest first, and where it ends."""
    number = 0
    for shift in range(0, _MAX_SHIFT + 1, 7):
        if at >= end:
            break
        byte = view[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
    raise _MalformedError


def _header(number: int, length: int) -> bytes:
    """What stands before the bytes of a field's value."""
    written = bytearray()
    for left in (number << 3 | _BYTES, length):
        while left >= 0x80:
            written.append(left & 0x7F | 0x80)
            left >>= 7
        written.append(left)
    return bytes(written)


def _text(raw: memoryview) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise _MalformedError from None
