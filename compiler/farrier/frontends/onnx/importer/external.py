"""ONNX's external data: tensor elements in separate files, by location, offset and length
(docs/ExternalData.md of the ONNX specification)."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import Message

from farrier.errors import InvalidModelError
from farrier.frontends.onnx.model.file import Model

_MOST_DIGITS = 19  # The digits of an offset or a length.


def is_external(tensor: onnx.TensorProto) -> bool:
    """Check whether a tensor's elements are in a separate file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def external_elements(
    tensor: onnx.TensorProto, nbytes: int, what: str, files: Model | None
) -> memoryview:
    """Return the `nbytes` bytes of a tensor's elements in a data file: mapped, not copied. `what`
    names the tensor in errors.

    Raises InvalidModelError, which names the tensor, the location and the file, if the model is not
    allowed to use that file, if the file is too short, or if it has changed since it was opened.
    """
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:
            raise InvalidModelError(f"{what} has external data with two keys {entry.key!r}")
        entries[entry.key] = entry.value
    location = entries.get("location", "")
    if files is None or not isinstance(location, str):
        raise InvalidModelError(f"{what} has external data where there can be none")
    offset = _number(entries.get("offset", "0"), "offset", what)
    file = files.data(location, what)
    length = _number(entries["length"], "length", what) if "length" in entries else nbytes
    of = f"{what} is {length} bytes from byte {offset} on of the data file {location!r}"
    if length != nbytes:
        raise InvalidModelError(f"{of}, and by its type and shape it has {nbytes}")
    file.check_unchanged()
    if offset + length > file.size:
        raise InvalidModelError(
            f"{of}, and {file.shown} has {file.size}",
            hint="the file is incomplete, or of another model: copy or download it again",
        )
    checksum = entries.get("checksum", "")
    if checksum and not hmac.compare_digest(file.sha1.encode(), checksum.lower().encode()):
        raise InvalidModelError(
            f"{of}, whose checksum is not that of {file.shown}, which is {file.sha1}",
            hint="the file is damaged, or of another model: copy or download it again",
        )
    return file.view[offset : offset + length]


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise InvalidModelError(f"{what} has external data whose {key} is {text!r}")
    return int(text)


def relocated(model: Model) -> tuple[bytes, Path]:
    """Return the model's message and a folder, for a reader that opens data files itself. The
    folder contains all data files, and the locations in the message are relative to it. Raises
    InvalidModelError."""
    places = {location: file.place for location, file in model.external.items()}
    folder = Path(os.path.commonpath([place.parent for place in places.values()]))
    proto = onnx.ModelProto.FromString(bytes(model.message))
    for tensor in filter(is_external, _tensors(proto)):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = places[entry.value].relative_to(folder).as_posix()
    return bytes(proto.SerializeToString()), folder


def exposed(message: bytes, names: Sequence[str]) -> bytes:
    """Return the message with the values `names` added to the graph's outputs."""
    proto = onnx.ModelProto.FromString(message)
    returned = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in returned
    )
    return bytes(proto.SerializeToString())


def _tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Yield every tensor in a message, at any depth."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in [value] if isinstance(value, Message) else value:
                if isinstance(inner, onnx.TensorProto):
                    yield inner
                else:
                    yield from _tensors(inner)
