"""What a rewrite must know while it imports."""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from farrier.frontends.builder.symbolic import has_dims
from farrier.frontends.onnx.importer.limits import MAX_MADE_BYTES
from farrier.frontends.onnx.importer.scope import ImportScope
from farrier.ops import NotStatic, NotSupported


def constant(scope: ImportScope, name: str, what: str) -> npt.NDArray[Any]:
    """The value of an operand; NotStatic where it is known only at run time."""
    data = scope.data(name)
    if data is None or has_dims(data):
        raise NotStatic(f"its {what} depends on data known only at run time", (name,))
    return data


def check_made(*shape: int) -> None:
    """Raises NotSupported where a constant that a rewrite is about to make would be too large."""
    if math.prod(shape) * 8 > MAX_MADE_BYTES:
        raise NotSupported(f"what takes a constant of {' × '.join(map(str, shape))} elements")
