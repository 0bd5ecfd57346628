"""Rules of pools."""

from __future__ import annotations

import functools

from farrier.frontends.builder.images import ImageBuilder
from farrier.frontends.tflite.call import Call, Rule
from farrier.frontends.tflite.ops.activations import activated
from farrier.frontends.tflite.ops.windows import window
from farrier.ops import Mismatch


def kernel(call: Call) -> tuple[int, int]:
    """Return the height and width of a pool's window."""
    height, width = int(call.option("height")), int(call.option("width"))
    if height <= 0 or width <= 0:
        raise Mismatch(f"its window is {height} × {width}")
    return height, width


def _pool(call: Call, b: ImageBuilder, *, op: str) -> str:
    """Convert a pool; an average does not count padding."""
    attrs = window(call, "h", "w")
    result = b.add(op, b.channels_first(call.value(0)), kernel_shape=kernel(call), **attrs)
    return b.channels_last(activated(b, result, call.option("activation")))


RULES: dict[str, Rule] = {
    "AVERAGE_POOL_2D": functools.partial(_pool, op="AveragePool"),
    "MAX_POOL_2D": functools.partial(_pool, op="MaxPool"),
}
