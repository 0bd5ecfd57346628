"""Rules that recover LayerNormalization from the primitives to which exporters decompose it.

    d = x - ReduceMean(x);  y = d / Sqrt(ReduceMean(d * d) + epsilon) * gamma + beta

flax writes the variance as `ReduceMean(x * x) - mean * mean` and multiplies the reciprocal root by
the scale. As one kernel, LayerNormalization reads x once, where the primitives would read it five
times, and it subtracts the mean before it squares. Only normalization over the last axis is
recovered. The node is built up in steps: first from Div, then Mul and Add are merged into it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from farrier.ir.graph import Node, Value, attributes
from farrier.ops.broadcast import ADD, DIV, MAX, MUL, POW, SUB
from farrier.ops.elementwise import RECIPROCAL, SQRT
from farrier.ops.normalize import LAYER_NORMALIZATION
from farrier.ops.operator import Operator
from farrier.ops.reduce import REDUCE_MEAN, REDUCE_SUM
from farrier.passes.rewriting import Rewriter, beneath, is_value, join_origins
from farrier.passes.rules.rule import Replacement

if TYPE_CHECKING:
    import numpy.typing as npt


def recover_layer_norm(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`d / Sqrt(ReduceMean(d * d) + epsilon)` → LayerNormalization of x with a scale of ones, where
    d is `x - ReduceMean(x)`."""
    if not DIV.matches(node):
        return None
    centred, root = (rewriter.producer(value) for value in node.inputs)
    if not SUB.matches(centred) or root is None:
        return None
    if not SQRT.matches(root) and not _is_root(root, rewriter):
        return None
    x, mean = centred.inputs
    shifted = rewriter.producer(root.inputs[0])
    if x is None or not ADD.matches(shifted):
        return None
    epsilon = rewriter.data(shifted.inputs[1])
    variance = rewriter.producer(shifted.inputs[0])
    square = rewriter.producer(_mean_operand(variance, rewriter))
    if epsilon is None or epsilon.size != 1 or not MUL.matches(square):
        return None
    d = node.inputs[0]
    if square.inputs != (d, d) or _mean_operand(rewriter.producer(mean), rewriter) != x:
        return None
    width = x.type.shape[-1]
    if not isinstance(width, int) or node.outputs[0].type != x.type:
        return None
    ones = np.ones(width, x.type.dtype.numpy)
    scale = rewriter.constant(ones, f"{node.outputs[0].name}_scale")
    attrs = attributes(axis=-1, epsilon=float(epsilon.reshape(-1)[0]))
    origin = join_origins((centred, root, node))
    return (Node("LayerNormalization", (x, scale), node.outputs, attrs, origin=origin),)


def _is_root(node: Node, rewriter: Rewriter) -> bool:
    """Check whether a node computes a square root, as a power of 1/2."""
    return POW.matches(node) and is_value(rewriter.data(node.inputs[1]), 0.5)


def _mean_operand(node: Node | None, rewriter: Rewriter) -> Value | None:
    """Return the operand of a ReduceMean over the last axis with keepdims; None for any other
    node."""
    if not REDUCE_MEAN.matches(node) or not node.attr("keepdims", 1):
        return None
    x = node.inputs[0]
    axes = rewriter.data(node.inputs[1]) if len(node.inputs) > 1 else None
    if x is None or axes is None or axes.size != 1:
        return None
    return x if int(axes.reshape(-1)[0]) in (-1, x.type.rank - 1) else None


def recover_flax_layer_norm(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`(x - m) * (scale / Sqrt(ReduceMean(x * x) - m * m + epsilon))` → LayerNormalization of x."""
    if not MUL.matches(node):
        return None
    centred, factor = (rewriter.producer(value) for value in node.inputs)
    if not SUB.matches(centred) or factor is None:
        return None
    x, mean = centred.inputs
    if x is None or mean is None or node.outputs[0].type != x.type:
        return None
    width = x.type.shape[-1] if x.type.shape else 0
    scale = rewriter.data(factor.inputs[1]) if MUL.matches(factor) else None
    root = rewriter.producer(factor.inputs[0]) if scale is not None else factor
    epsilon = _epsilon(root, x, mean, rewriter)
    if epsilon is None or not isinstance(width, int):
        return None
    if scale is None:
        scale = np.ones(width, x.type.dtype.numpy)
    if scale.size != width or scale.shape[-1:] != (width,):
        return None
    gamma = rewriter.constant(scale.reshape(-1), f"{node.outputs[0].name}_scale")
    attrs = attributes(axis=-1, epsilon=epsilon)
    origin = join_origins((centred, factor, node))
    return (Node("LayerNormalization", (x, gamma), node.outputs, attrs, origin=origin),)


def _epsilon(node: Node | None, x: Value, mean: Value, rewriter: Rewriter) -> float | None:
    """Return epsilon if `node` computes `1 / Sqrt(variance of x + epsilon)`; None for any other
    node."""
    root = rewriter.producer(node.inputs[0]) if RECIPROCAL.matches(node) else None
    shifted = rewriter.producer(root.inputs[0]) if SQRT.matches(root) else None
    if not ADD.matches(shifted):
        return None
    epsilon = rewriter.data(shifted.inputs[1])
    if epsilon is None or epsilon.size != 1:
        return None
    variance = _producer(shifted.inputs[0], rewriter)
    if MAX.matches(variance) and len(variance.inputs) == 2:  # Rounding may make it negative.
        bound = rewriter.data(variance.inputs[1])
        variance = _producer(variance.inputs[0], rewriter) if is_value(bound, 0.0) else None
    if not SUB.matches(variance) or _row_mean(mean, rewriter) != beneath(x, rewriter):
        return None
    whole = _row_mean(variance.inputs[0], rewriter)
    if not _is_square(whole, beneath(x, rewriter), rewriter):
        return None
    if not _is_square(variance.inputs[1], beneath(mean, rewriter), rewriter):
        return None
    return float(epsilon.reshape(-1)[0])


def _producer(value: Value | None, rewriter: Rewriter) -> Node | None:
    """Return the node that computes `value`, looking through views."""
    return None if value is None else rewriter.producer(beneath(value, rewriter))


def _is_square(value: Value | None, of: Value, rewriter: Rewriter) -> bool:
    """Check whether `value` is the product of the value `of` with itself; views of either are
    accepted."""
    node = _producer(value, rewriter)
    if not MUL.matches(node):
        return False
    return all(each is not None and beneath(each, rewriter) == of for each in node.inputs)


def _row_mean(value: Value | None, rewriter: Rewriter) -> Value | None:
    """Return the value whose rows `value` averages, by ReduceMean over the last axis, or by a sum
    times the reciprocal of the row length; None for any other value. Views are looked through."""
    node = _producer(value, rewriter)
    share = rewriter.data(node.inputs[1]) if MUL.matches(node) else None
    if share is not None and node is not None:
        node = _producer(node.inputs[0], rewriter)
    if not (REDUCE_MEAN if share is None else REDUCE_SUM).matches(node) or len(node.inputs) < 2:
        return None
    rows, axes = node.inputs[0], rewriter.data(node.inputs[1])
    if rows is None or axes is None or axes.size != 1 or not rows.type.shape:
        return None
    width = rows.type.shape[-1]
    if int(axes.reshape(-1)[0]) not in (-1, rows.type.rank - 1) or not isinstance(width, int):
        return None
    if share is not None and not is_value(share, float(rows.type.dtype.numpy.type(1 / width))):
        return None
    return beneath(rows, rewriter)


def merge_layer_norm_scale(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`LayerNormalization(x, s) * gamma` → `LayerNormalization(x, s * gamma)`."""
    inner = _single_use_norm(node, MUL, rewriter)
    gamma = _last_axis(node, rewriter)
    if inner is None or gamma is None or len(inner.inputs) != 2:
        return None
    scale = rewriter.data(inner.inputs[1])
    if scale is None:
        return None
    merged = rewriter.constant(scale * gamma, f"{node.outputs[0].name}_scale")
    return (_grown(inner, node, (inner.inputs[0], merged)),)


def merge_layer_norm_bias(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`LayerNormalization(x, s) + beta` → `LayerNormalization(x, s, beta)`."""
    inner = _single_use_norm(node, ADD, rewriter)
    beta = _last_axis(node, rewriter)
    if inner is None or beta is None or len(inner.inputs) != 2:
        return None
    bias = rewriter.constant(beta, f"{node.outputs[0].name}_bias")
    return (_grown(inner, node, (*inner.inputs, bias)),)


def _single_use_norm(node: Node, operator: Operator, rewriter: Rewriter) -> Node | None:
    """Return the LayerNormalization over the last axis whose result only `node` reads, if `node` is
    an `operator` that does not broadcast the result; else None."""
    inner = rewriter.producer(node.inputs[0]) if operator.matches(node) else None
    if not LAYER_NORMALIZATION.matches(inner) or len(inner.outputs) != 1:
        return None
    y = inner.outputs[0]
    if node.outputs[0].type != y.type:
        return None
    last = inner.attr("axis", -1) in (-1, y.type.rank - 1)
    return inner if last and rewriter.single_use(y) else None


def _last_axis(node: Node, rewriter: Rewriter) -> npt.NDArray[Any] | None:
    """Return the second operand of `node` if it is a constant with one number for each index of the
    last axis; else None."""
    y, operand = node.outputs[0].type, node.inputs[1] if len(node.inputs) > 1 else None
    if operand is None or not y.shape or operand.type.shape[-1:] != y.shape[-1:]:
        return None
    if operand.type.size != y.shape[-1]:
        return None
    data = rewriter.data(operand)
    return None if data is None else data.reshape(-1)


def _grown(inner: Node, node: Node, inputs: tuple[Value | None, ...]) -> Node:
    origin = join_origins((inner, node))
    return dataclasses.replace(inner, inputs=inputs, outputs=node.outputs, origin=origin)
