"""A rule that recovers Softmax from the primitives to which exporters decompose it.

    e = Exp(x - ReduceMax(x));  y = e / ReduceSum(e)

As one kernel, Softmax reads x once, and attention can be recognized. Only Softmax over the last
axis is recovered. JAX reduces without keeping the axis, and moves axes of length 1; a view that
preserves the last axis preserves the rows, so views are looked through.
"""

from __future__ import annotations

import math

from farrier.ir.graph import Node, Value, attributes
from farrier.ops.broadcast import DIV, MAX, SUB
from farrier.ops.elementwise import EXP
from farrier.ops.operator import Operator
from farrier.ops.reduce import REDUCE_MAX, REDUCE_SUM
from farrier.passes.rewriting import Rewriter, beneath, is_value, join_origins
from farrier.passes.rules.rule import Replacement


def recover_softmax(node: Node, rewriter: Rewriter) -> Replacement | None:
    """`e / ReduceSum(e)` with `e = Exp(x - ReduceMax(x))` → Softmax(x)."""
    if not DIV.matches(node):
        return None
    powers, total = node.inputs
    exponential = rewriter.producer(powers)
    if powers is None or total is None or not EXP.matches(exponential):
        return None
    shifted = rewriter.producer(exponential.inputs[0])
    if not SUB.matches(shifted) or node.outputs[0].type != powers.type:
        return None
    x, greatest = shifted.inputs
    if x is None or greatest is None or x.type != powers.type:
        return None
    if not _reduces(total, REDUCE_SUM, powers, rewriter):
        return None
    if not _reduces(greatest, REDUCE_MAX, x, rewriter):
        return None
    origin = join_origins((exponential, node))
    return (Node("Softmax", (x,), node.outputs, attributes(axis=-1), origin=origin),)


def _reduces(result: Value, operator: Operator, x: Value, rewriter: Rewriter) -> bool:
    """Check whether `result` is a reduction of the rows of `x` by `operator`, with one element per
    row."""
    if result.type.shape != (*x.type.shape[:-1], 1):
        return False
    reduction = rewriter.producer(beneath(result, rewriter))
    if MAX.matches(reduction):  # JAX takes the maximum with -inf, which changes nothing.
        bounds = [value for value in reduction.inputs if value is not None]
        others = [v for v in bounds if not is_value(rewriter.data(v), -math.inf)]
        if len(bounds) != 2 or len(others) != 1:
            return False
        reduction = rewriter.producer(beneath(others[0], rewriter))
    if not operator.matches(reduction) or len(reduction.inputs) < 2:
        return False
    rows, axes = reduction.inputs[0], rewriter.data(reduction.inputs[1])
    if rows is None or axes is None or axes.size != 1 or not rows.type.shape:
        return False
    is_last = int(axes.reshape(-1)[0]) in (-1, rows.type.rank - 1)
    has_rows = rows.type.shape[-1] == x.type.shape[-1]
    return is_last and has_rows and beneath(rows, rewriter) == beneath(x, rewriter)
