"""Damages models: their bytes, or the tree of messages that the bytes spell."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = (
    *(0, 1, -1, 2, -2, 3, 4, 5, 7, 8, 16, 17, 28, 29, 64, 100, 127, 128, 255, 256, 1000),
    *(65535, 65536, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32, 1 << 40),
    *(1 << 60, 1 << 62, (1 << 63) - 1, -(1 << 63)),
)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    *("", " ", "x", "y", "\0", "a\nb", "a\0b", "\x1b[31mred", "../../etc/passwd", "/dev/zero"),
    *("<script>alert(1)</script>", "%s%n{0}", "'; DROP TABLE jobs; --", "é\u202e", "💥"),
    *("a" * 5000, "ai.onnx", "ai.onnx.ml", "com.microsoft", "custom.domain", "s0", "v0", "v1"),
)
_WIRE = (
    *(b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x0a\xff\xff\xff\xff\x07"),
    *(b"\x0b" * 50, b"\x0c", b"\x00", b"\x3a\x02\x0a\x00", b"\x08\x00" * 40),
)


def damaged_bytes(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """1 to 8 edits of the bytes; pieces of `other` may be spliced in."""
    data_now = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data_now) + 1)
        end = min(len(data_now), at + rng.choice((1, 1, 2, 4, 16, 64, 1000)))
        match rng.randrange(8):
            case 0 if at < len(data_now):
                data_now[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data_now):
                data_now[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data_now[at:end]
            case 3:
                del data_now[at:]
            case 4:
                data_now[at:at] = rng.choice(_WIRE)
            case 5:
                data_now[at:at] = data_now[at:end] * rng.choice((1, 2, 10))
            case 6:
                start = rng.randrange(len(other) + 1)
                data_now[at:end] = other[start : start + rng.choice((4, 16, 64, 1000))]
            case _:
                data_now[at:end] = rng.randbytes(end - at)
    return bytes(data_now)


def damaged_tree(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """1 to 6 edits of the messages; those of `other` may be grafted on."""
    model, donor = onnx.load_from_string(data), onnx.load_from_string(other)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        messages = list(_messages(model))
        message = rng.choice(messages)
        names = sorted({n for m in messages if isinstance(m, onnx.NodeProto) for n in m.output})
        if isinstance(message, onnx.NodeProto) and rng.random() < 0.3:
            _damage_node(message, rng, donor)
            continue
        fields = message.DESCRIPTOR.fields
        present = [field for field, _ in message.ListFields()]
        field = rng.choice(present if present and rng.random() < 0.8 else fields)
        if field.is_repeated:
            _damage_list(message, field, rng, donor, names)
        elif rng.random() < 0.15:
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            graft = _graft(field, rng, donor if rng.random() < 0.5 else model)
            if graft is not None:
                getattr(message, field.name).CopyFrom(graft)
        else:
            _set(message, field, _scalar(field, rng, names, getattr(message, field.name)))
    return bytes(model.SerializeToString())


def _messages(message: Message) -> Iterator[Message]:
    """The message and those in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                yield from _messages(part)


def _damage_node(node: onnx.NodeProto, rng: random.Random, donor: onnx.ModelProto) -> None:
    """Damage the meaning of a node: its operator, or the order of its operands."""
    nodes = [m for m in _messages(donor) if isinstance(m, onnx.NodeProto)]
    other = rng.choice(nodes) if nodes else node
    match rng.randrange(4):
        case 0:
            node.op_type, node.domain = other.op_type, other.domain
        case 1:
            kept = list(node.input)
            rng.shuffle(kept)
            node.input[:] = kept
        case 2:
            node.attribute.extend(other.attribute)
        case _:
            inputs, outputs = list(node.input), list(node.output)
            node.CopyFrom(other)
            node.input[:], node.output[:] = inputs, outputs


def _damage_list(
    message: Message,
    field: FieldDescriptor,
    rng: random.Random,
    donor: onnx.ModelProto,
    names: list[str],
) -> None:
    items = getattr(message, field.name)
    at = rng.randrange(len(items)) if items else 0
    match rng.randrange(6):
        case 0 if items:
            del items[at]
        case 1 if items:
            items.extend([items[at]] * rng.choice((1, 1, 2, 50)))
        case 2 if items:
            kept = list(items)
            rng.shuffle(kept)
            del items[:]
            items.extend(kept)
        case 3 if items:
            del items[at:]
        case _ if field.type == FieldDescriptor.TYPE_MESSAGE:
            graft = _graft(field, rng, donor)
            if graft is not None:
                items.add().CopyFrom(graft)
        case _:
            value = _scalar(field, rng, names, items[at] if items else None)
            # The value may be outside the field's range.
            with contextlib.suppress(TypeError, ValueError):
                if items and rng.random() < 0.7:
                    items[at] = value
                else:
                    items.append(value)


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    with contextlib.suppress(TypeError, ValueError):  # The value may be outside the field's range.
        setattr(message, field.name, value)


def _scalar(field: FieldDescriptor, rng: random.Random, names: list[str], old: Any) -> Any:
    """Return a value of the field's type: near the old one, or a value that often causes
    failures."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            data = bytes(old or b"")
            cut = rng.randrange(len(data) + 1)
            return rng.choice(
                (data[:cut], data + b"\0" * rng.choice((1, 4, 100)), b"", b"\xff\xfe")
            )
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(names) if names and rng.random() < 0.7 else rng.choice(_TEXTS)
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(_FLOATS)
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice([value.number for value in field.enum_type.values])
        case _:
            near = int(old or 0) + rng.choice((-1, 1))
            return near if rng.random() < 0.2 else rng.choice(_INTEGERS)


def _graft(field: FieldDescriptor, rng: random.Random, donor: onnx.ModelProto) -> Message | None:
    """A copy of a message of the field's type; None where the donor has none."""
    messages = [m for m in _messages(donor) if m.DESCRIPTOR is field.message_type]
    if not messages:
        return None
    graft: Message = field.message_type._concrete_class()
    graft.CopyFrom(rng.choice(messages))
    return graft
