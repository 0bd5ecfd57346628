"""The test for programs dominated by a sum of products whose operands are reused, such as matrix
products."""

from __future__ import annotations

from farrier.ir.expr import Binary, BinaryOp, Cast, Expr, Load, Reduce, ReduceOp, Select
from farrier.ir.tensor import Stage, TensorProgram
from farrier.space.inline import inline
from farrier.space.rewrites import without_halos
from farrier.targets.cpu.sketch.access import accesses
from farrier.targets.cpu.sketch.fuse_consumer import fuse_consumers
from farrier.targets.cpu.sketch.nest import Nest


def is_wide_contraction(program: TensorProgram, lanes: int) -> bool:
    """Check whether tiles in registers would save loads in the loop nest with the most work. The
    nest must sum products, have at least `lanes` points along its last axis, and use each loaded
    operand for several points.

    y[i, j] = sum(a[i, k] * b[k, j])     each b is read again for every i, each a for every j
    """
    _, nests = fuse_consumers(inline(without_halos(program)))
    nest = max(nests, key=lambda each: each.work)
    if len(nest.sums) != 1 or not nest.long_axes or nest.extents[nest.long_axes[-1]] < lanes:
        return False
    (total,) = nest.sums
    return _is_sum_of_products(total) and _is_reused(nest, total)


def _is_sum_of_products(total: Stage) -> bool:
    body = total.body
    assert isinstance(body, Reduce)
    if body.op is not ReduceOp.SUM:
        return False
    term = _within(body.body)
    if not isinstance(term, Binary) or term.op is not BinaryOp.MUL:
        return False
    return all(isinstance(_within(side), Load) for side in (term.left, term.right))


def _within(expr: Expr) -> Expr:
    """Return the expression inside casts and padding (the value of a Select whose condition
    holds)."""
    while isinstance(expr, Select | Cast):
        expr = expr.then if isinstance(expr, Select) else expr.operand
    return expr


def _is_reused(nest: Nest, total: Stage) -> bool:
    operands = accesses(total, total.all_axes, frozenset())
    return len(operands) > 1 and all(
        any(access.strides[axis] == 0 for axis in nest.long_axes) for access in operands
    )
