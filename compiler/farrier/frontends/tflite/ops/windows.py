"""The options of sliding windows: sizes, strides, dilations and padding."""

from __future__ import annotations

from typing import Any

from farrier.frontends.tflite.call import Call
from farrier.ops import Mismatch

_PADDINGS = {0: "SAME_UPPER", 1: "VALID"}  # Padding of the schema


def padding(call: Call) -> str:
    """Return the padding mode as a value of ONNX's `auto_pad`. Raises Mismatch for an unknown
    mode."""
    number = call.option("padding")
    if number not in _PADDINGS:
        raise Mismatch(f"its padding is {number}, which is neither SAME nor VALID")
    return _PADDINGS[number]


def window(call: Call, *axes: str) -> dict[str, Any]:
    """Return the attributes of a sliding window: strides, and dilations if the operator has any,
    along `axes` ("h", "w")."""
    attrs: dict[str, Any] = {
        "strides": sizes(call, "stride", axes),
        "auto_pad": padding(call),
    }
    if f"dilation_{axes[0]}" in call.operator.options:
        attrs["dilations"] = sizes(call, "dilation", axes)
    return attrs


def sizes(call: Call, name: str, axes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the options `name` of a window along `axes` as positive integers."""
    values = tuple(int(call.option(f"{name}_{axis}")) for axis in axes)
    if any(value <= 0 for value in values):
        raise Mismatch(f"its {name}s are {values}")
    return values
