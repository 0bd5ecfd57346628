"""Copies of images to another order of their axes, as tensor programs."""

from __future__ import annotations

from farrier.ir.expr import Binary, BinaryOp, Buffer, Const
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from tests.schedule.programs import axes, load


def relayout(images, channels, height, width, dtype=DType.F32, *, is_last=True):
    """Return an image plus 1 with its channels last, or first again."""
    first, last = (images, channels, height, width), (images, height, width, channels)
    x = Buffer("x", dtype, first if is_last else last)
    y = Buffer("y", dtype, last if is_last else first)
    points = axes(n=images, h=height, w=width, c=channels)
    if not is_last:
        points = axes(n=images, c=channels, h=height, w=width)
    at = ("n", "c", "h", "w") if is_last else ("n", "h", "w", "c")
    addend = Const(1.0 if dtype.is_float else 1, dtype)
    body = Binary(BinaryOp.ADD, load(x, *at), addend)
    return TensorProgram("relayout", (x,), (Stage(y, points, body),), (y,))
