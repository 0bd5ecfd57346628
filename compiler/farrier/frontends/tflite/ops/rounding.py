"""TFLite's rounding, with halves away from zero; Farrier's Round rounds halves to even."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder import Builder


def rounded_away(b: Builder, x: str) -> str:
    """Return floats rounded to integers, with halves away from zero."""
    size = b.add("Abs", x)
    floor = b.add("Floor", size)
    half, unit = (b.constant(np.array(value, b.dtype(x).numpy)) for value in (0.5, 1.0))
    is_more = b.add("GreaterOrEqual", b.add("Sub", size, floor), half)
    whole = b.add("Where", is_more, b.add("Add", floor, unit), floor)
    return b.add("Mul", b.add("Sign", x), whole)
