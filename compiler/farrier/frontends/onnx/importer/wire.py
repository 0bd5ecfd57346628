"""Separate the elements of large tensors from a model's bytes, so that protobuf does not copy
them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from farrier.frontends.onnx.model.wire import BYTES, Field, MalformedError, fields, header, text

_LARGE = 4096  # A tensor with fewer bytes stays in the message.


def split(data: bytes | memoryview) -> tuple[bytes, dict[str, memoryview]]:
    """Return the model's message without the raw elements of large initializers, and these
    elements, as views of `data`, by name of initializer. Bytes that are not a model are returned
    unchanged, so that protobuf rejects them."""
    try:
        return _split(memoryview(data))
    except MalformedError:
        return bytes(data), {}


def _split(view: memoryview) -> tuple[bytes, dict[str, memoryview]]:
    graph = _only(fields(view, 0, len(view)), onnx.ModelProto.GRAPH_FIELD_NUMBER)
    if graph is None:
        return bytes(view), {}
    elements: dict[str, memoryview] = {}
    parts: list[bytes | memoryview] = []
    kept = graph.value  # From here on, the graph's bytes are not in `parts` yet.
    for field in fields(view, graph.value, graph.end):
        if field.number != onnx.GraphProto.INITIALIZER_FIELD_NUMBER or field.kind != BYTES:
            continue
        inner = list(fields(view, field.value, field.end))
        raw = _only(inner, onnx.TensorProto.RAW_DATA_FIELD_NUMBER)
        name = _only(inner, onnx.TensorProto.NAME_FIELD_NUMBER)
        if raw is None or name is None or raw.end - raw.value < _LARGE:
            continue
        initializer = text(view[name.value : name.end])
        if initializer in elements:
            raise MalformedError
        elements[initializer] = view[raw.value : raw.end]
        rest = (view[field.value : raw.start], view[raw.end : field.end])
        parts += (view[kept : field.start], header(field.number, sum(map(len, rest))), *rest)
        kept = field.end
    parts.append(view[kept : graph.end])
    head = header(graph.number, sum(map(len, parts)))
    return b"".join((view[: graph.start], head, *parts, view[graph.end :])), elements


def _only(of_message: Iterable[Field], number: int) -> Field | None:
    """Return the single length-delimited field with that number, or None if there is none. Raises
    MalformedError if there are several, which protobuf would merge, or if the field has another
    type."""
    same = [field for field in of_message if field.number == number]
    if len(same) > 1 or any(field.kind != BYTES for field in same):
        raise MalformedError
    return same[0] if same else None
