"""Recognize the format of a model file by its first bytes."""

from __future__ import annotations

import enum


class Format(enum.Enum):
    """A model format that a frontend reads; the value is the format's name in messages."""

    ONNX = "ONNX"
    STABLEHLO = "StableHLO"
    TFLITE = "TFLite"
    TORCH = "PyTorch"


HEAD = 64  # The number of bytes that suffice to recognize every format.
_MAGIC = (  # Offset, bytes at the offset, format.
    (4, b"TFL3", Format.TFLITE),
    (0, b"PK\x03\x04", Format.TORCH),  # A zip archive.
    (0, b"ML\xefR", Format.STABLEHLO),  # MLIR bytecode.
    (0, b"#loc", Format.STABLEHLO),  # MLIR as text.
    (0, b'"builtin.module"', Format.STABLEHLO),
    (0, b"module ", Format.STABLEHLO),
    (0, b"module{", Format.STABLEHLO),
)


def format_of(data: bytes | memoryview) -> Format:
    """Return the format of a model. A file is assumed to be ONNX, which has no signature, if no
    other format matches."""
    head = bytes(data[:HEAD])
    return next(
        (format for at, magic, format in _MAGIC if head[at:].startswith(magic)), Format.ONNX
    )
