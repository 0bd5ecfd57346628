"""Constant operands of rewrites, and the limit on the constants that they define."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from farrier.frontends.builder.limits import MAX_MADE_BYTES
from farrier.frontends.builder.symbolic import has_dims
from farrier.ops import NotStatic, NotSupported

if TYPE_CHECKING:
    from farrier.frontends.builder.builder import Builder


def constant(builder: Builder, name: str, what: str) -> npt.NDArray[Any]:
    """Return the elements of a constant operand. Raises NotStatic, with `what` in the message, if
    it is known only at run time."""
    data = builder.data(name)
    if data is None or has_dims(data):
        raise NotStatic(f"its {what} depends on data known only at run time", (name,))
    return data


def check_made(*shape: int) -> None:
    """Raise NotSupported if a constant of this shape in f64 would exceed the limit."""
    if math.prod(shape) * 8 > MAX_MADE_BYTES:
        raise NotSupported(f"what takes a constant of {' × '.join(map(str, shape))} elements")
