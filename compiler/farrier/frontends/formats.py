"""The formats of models, by the first bytes of a file."""

from __future__ import annotations

import enum


class Format(enum.Enum):
    """A format that a frontend reads; the value is its name in messages."""

    ONNX = "ONNX"
    TFLITE = "TFLite"


HEAD = 64  # Bytes of a file in which every format shows itself.
_MAGIC = ((4, b"TFL3", Format.TFLITE),)  # At which byte, and what stands there.


def format_of(data: bytes | memoryview) -> Format:
    """Return the format of a model. An ONNX message has no mark of its own: it is what no other
    format claims."""
    head = bytes(data[:HEAD])
    return next(
        (format for at, magic, format in _MAGIC if head[at:].startswith(magic)), Format.ONNX
    )
