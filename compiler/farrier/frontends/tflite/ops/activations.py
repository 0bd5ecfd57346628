"""Rules of activations: fused into another operator, and as separate operators."""

from __future__ import annotations

import numpy as np

from farrier.frontends.builder import Builder
from farrier.ops import NotSupported

NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)  # ActivationFunctionType of the schema
RANGES: dict[int, tuple[float | None, float | None]] = {
    NONE: (None, None),
    RELU: (0.0, None),
    RELU_N1_TO_1: (-1.0, 1.0),
    RELU6: (0.0, 6.0),
}


def activated(b: Builder, x: str, activation: int) -> str:
    """Return a tensor, not quantized, with a fused activation applied; `activation` is its number
    in the schema."""
    if activation == TANH:
        return b.add("Tanh", x)
    if activation not in RANGES:
        raise NotSupported(f"the fused activation {activation}")
    low, high = RANGES[activation]
    return x if activation == NONE else limited(b, x, low, high)


def limited(b: Builder, x: str, low: float | None, high: float | None) -> str:
    """Clamp x to [low, high]; a bound of None does not apply."""
    if low == 0 and high is None:
        return b.add("Relu", x)
    bounds = ["" if v is None else b.constant(np.array(v, b.dtype(x).numpy)) for v in (low, high)]
    return b.add("Clip", x, *bounds)
