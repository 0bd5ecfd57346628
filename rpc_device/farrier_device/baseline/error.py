"""The difference between the outputs of two engines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def max_error(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> float | None:
    """Return the largest `error` over all outputs, None if there are none. Outputs are matched by
    name, or by position if an engine uses another name."""
    in_order = list(outputs.values())
    errors = []
    for place, (name, array) in enumerate(expected.items()):
        if name not in outputs and place >= len(in_order):
            return math.inf
        output = outputs[name] if name in outputs else in_order[place]
        errors.append(error(output, array))
    return max(errors, default=None)


def error(output: Array, expected: Array) -> float:
    """Return max |output - expected| over max |expected|; infinity if the shapes differ. A NaN
    matches only a NaN, and an infinity only the same infinity."""
    if np.shape(output) != expected.shape:
        return math.inf
    if expected.dtype.kind == "U":
        return 0.0 if np.array_equal(output, expected) else math.inf
    left, right = np.asarray(output).astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        if same.all():
            return 0.0
        off = float(np.max(np.abs(left - right)[~same]))
        span = float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0))
    return off / span if span and math.isfinite(off) else math.inf
