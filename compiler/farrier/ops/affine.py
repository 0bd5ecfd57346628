"""Affine rules: recognize nodes that compute `x * scale + shift` with one scale and one shift per
channel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from farrier.ir.graph import Node, Value
from farrier.ops.operator import AffineRule, Array, Data


def by_operand(map: Callable[[Array], tuple[Array, Array]]) -> AffineRule:
    """Return the affine rule of an operator of two operands, x and a constant that varies along the
    channel axis only. `map` computes scale and shift from the constant; the rule returns None for a
    scale that is not finite.
    """

    def rule(node: Node, data: Data) -> tuple[Array, Array] | None:
        x = node.inputs[0]
        if x is None or node.outputs[0].type.shape != x.type.shape:
            return None
        operand = per_channel(data(node.inputs[1]), x)
        if operand is None:
            return None
        with np.errstate(divide="ignore"):
            scale, shift = map(operand)
        return (scale, shift) if np.isfinite(scale).all() else None

    return rule


def per_channel(data: Array | None, x: Value) -> Array | None:
    """Return a constant that broadcasts along all axes of `x` except the channel axis, 1, as a
    float64 array [channels]; return None for any other constant.
    """
    channels = x.type.shape[1]
    if data is None or data.ndim > x.type.rank or not isinstance(channels, int):
        return None
    shape = (1,) * (x.type.rank - data.ndim) + data.shape
    if any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(data.reshape(-1).astype(np.float64), (channels,))
