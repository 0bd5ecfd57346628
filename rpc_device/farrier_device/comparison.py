"""The comparison of outputs with only the standard library, for devices whose code does not include
a comparison."""

from __future__ import annotations

import math
import struct
from itertools import compress

# Formats of `struct` by dtype.
_FORMATS = {
    "f32": "f", "f64": "d", "f16": "e", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i",
    "u32": "I", "i64": "q", "u64": "Q", "bool": "B",
}  # fmt: skip
_BITS = {1: "B", 2: "H", 4: "I", 8: "Q"}
_LEAST_SCALE = 2.0**-126  # The smallest normal f32 stands for outputs that are all zero.


def max_error(
    out: memoryview, expected: memoryview, dtype: str, padding: int | None = None
) -> float:
    """Return max |out - expected| over max |expected|, ignoring elements of `expected` whose bits
    are `padding`. A NaN matches only a NaN, and an infinity only the same infinity. Raises
    ValueError for a dtype that the standard library cannot read."""
    form = _FORMATS.get(dtype)
    if form is None:
        raise ValueError(f"outputs of dtype {dtype} cannot be compared on this device")
    pairs = list(zip(_numbers(form, out), _numbers(form, expected), strict=True))
    if padding is not None:
        bits = _numbers(_BITS[struct.calcsize(form)], expected)
        pairs = list(compress(pairs, (word != padding for word in bits)))
    largest = max((abs(b) for _, b in pairs if math.isfinite(b)), default=0.0)
    return max((_distance(a, b) for a, b in pairs), default=0.0) / max(largest, _LEAST_SCALE)


def _numbers(form: str, data: memoryview) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data)


def _distance(value: float, expected: float) -> float:
    if value == expected or (math.isnan(value) and math.isnan(expected)):
        return 0.0
    distance = abs(value - expected)
    return math.inf if math.isnan(distance) else float(distance)
