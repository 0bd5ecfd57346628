"""The minimum arithmetic that any code for a kernel must perform, as a base for lower bounds on
time.

`farrier.ir.work` counts multiplications with padding zeros, as is usual for GFLOP/s. Code may skip
them, so a lower bound must not count them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.dim import typical
from farrier.ir.evaluate import value_at
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceOp,
    Select,
    Unary,
    UnaryOp,
    dtype_of,
)
from farrier.ir.substitute import Substitution, variables
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType

# A condition with more points is not evaluated; this many take a few milliseconds in numpy.
_MOST_POINTS = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Products:
    """The number of multiplications of values of two dtypes that one stage must add up: a lower
    bound for any code."""

    left: DType
    right: DType
    count: int


def least_products(program: TensorProgram) -> list[Products]:
    """Return the number of products that each stage must add up, at the typical values of dims.
    Products with padding, which are zero, are not counted."""
    written = {stage.buffer.name: stage for stage in program.stages}
    candidates = (_products(stage, written) for stage in program.stages)
    return [products for products in candidates if products is not None]


def _products(stage: Stage, written: Mapping[str, Stage]) -> Products | None:
    body = stage.body
    if not isinstance(body, Reduce) or body.op is not ReduceOp.SUM:
        return None
    conditions: list[Expr] = []
    summand = _unpadded(body.body, conditions)
    if not isinstance(summand, Binary) or summand.op is not BinaryOp.MUL:
        return None
    left, right = (_unpadded(side, conditions) for side in (summand.left, summand.right))
    conditions += [*_inside(left, written), *_inside(right, written)]
    axes = {axis.name: axis for axis in (*stage.axes, *body.axes)}
    points = math.prod(typical(axis.extent) for axis in axes.values())
    reduced = {axis.name for axis in body.axes}
    share = math.prod(
        _share(group, [axis for name, axis in axes.items() if name in names], reduced)
        for names, group in _groups(conditions)
    )
    return Products(dtype_of(left), dtype_of(right), int(points * share))


def _unpadded(expr: Expr, conditions: list[Expr]) -> Expr:
    """Return the expression inside enclosing casts and Selects whose other branch is zero, and
    append the conditions of these Selects to `conditions`."""
    while isinstance(expr, Select | Cast):
        if isinstance(expr, Cast):
            expr = expr.operand
        elif _is_zero(expr.otherwise):
            conditions += _conjuncts(expr.condition)
            expr = expr.then
        elif _is_zero(expr.then):
            conditions.append(Unary(UnaryOp.NOT, expr.condition))
            expr = expr.otherwise
        else:
            return expr
    return expr


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _inside(factor: Expr, written: Mapping[str, Stage]) -> Iterator[Expr]:
    """Yield the conditions under which `factor`, a factor of a product, is not padding. Its indices
    must lie within its buffer, excluding the halo. If an elementwise stage in `written` computes
    the buffer, that stage must not pad at this point either."""
    if not isinstance(factor, Load):
        return
    for index, extent in zip(factor.indices, factor.buffer.shape, strict=True):
        yield Binary(BinaryOp.LE, e.index(0), index)
        yield e.less(index, e.index(typical(extent)))
    stage = written.get(factor.buffer.name)
    if stage is not None and not isinstance(stage.body, Reduce):
        conditions: list[Expr] = []
        _unpadded(stage.body, conditions)
        axes = (axis.name for axis in stage.axes)
        places = Substitution(dict(zip(axes, factor.indices, strict=True)))
        yield from map(places.expr, conditions)


def _groups(conditions: Sequence[Expr]) -> list[tuple[set[str], list[Expr]]]:
    """Return the conditions in groups, each with the names of its variables; conditions that share
    variables, directly or through other conditions, are in one group."""
    groups: list[tuple[set[str], list[Expr]]] = []
    for condition in dict.fromkeys(conditions):
        names, members = set(variables(condition)), [condition]
        rest = []
        for others, group in groups:
            if names & others:
                names |= others
                members = [*group, *members]
            else:
                rest.append((others, group))
        groups = [*rest, (names, members)]
    return groups


def _share(conditions: Sequence[Expr], axes: Sequence[Axis], reduced: set[str]) -> float:
    """Return the fraction of the points of `axes` at which all conditions hold.

    If there are too many points to evaluate, return a lower bound: for each point of the axes that
    are not in `reduced`, one point of the reduced axes.
    """
    extents = [typical(axis.extent) for axis in axes]
    at_least = 1 / max(1, math.prod(typical(a.extent) for a in axes if a.name in reduced))
    if not math.prod(extents) or math.prod(extents) > _MOST_POINTS:
        return at_least
    places: dict[str, Any] = {}
    for position, (axis, extent) in enumerate(zip(axes, extents, strict=True)):
        shape = [1] * len(axes)
        shape[position] = extent
        places[axis.name] = np.arange(extent, dtype=np.int64).reshape(shape)
    holds: Any = True
    try:
        for condition in conditions:
            holds = holds & value_at(condition, places)
    except (CompilerError, KeyError):  # A size, or an element, decides.
        return at_least
    return float(np.mean(np.broadcast_to(holds, extents)))
