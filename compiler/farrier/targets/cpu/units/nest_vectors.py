"""The selection of the loops to vectorize in an operator's loop nest: innermost loops with
independent iterations that access adjacent elements, or all the same element.

    before:  for j in serial(64):      y[p[i], j] = x[i, j]
    after:   for j in vectorized(64):  y[p[i], j] = x[i, j]

These loops stay scalar: gathers and scatters; floating-point sums, whose rounding would depend on
the target's vector length; and loops too short to fill a vector, since later loads of the elements
would wait for the partial store.
"""

from __future__ import annotations

from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent, bounds, product
from farrier.ir.expr import BinaryOp, Var
from farrier.ir.loop import For, Function, LoopKind, Store
from farrier.ir.statements import walk_stmts
from farrier.ir.substitute import variables
from farrier.schedule.accesses import Access, accesses, is_straight_line, reduction
from farrier.schedule.errors import ScheduleError
from farrier.schedule.kind_primitives import vectorize
from farrier.schedule.nest import NestView, loops

UNDECIDED = (LoopKind.SERIAL, LoopKind.INDEPENDENT)
_ROUNDED = (BinaryOp.ADD, BinaryOp.MUL)


def vector_loops(function: Function, lanes: int) -> list[str]:
    """Return the loops to vectorize with `lanes` lanes, outermost first."""
    simplifier = Simplifier(NestView(function, "vectorize").ranges())
    return [
        loop.var
        for loop in loops(function.body)
        if loop.kind in UNDECIDED
        and is_straight_line(loop.body)
        and bounds(loop.extent)[1] >= lanes
        and _is_contiguous(loop, simplifier)
        and _is_exact(loop)
        and _is_legal(function, loop)
    ]


def _is_contiguous(loop: For, simplifier: Simplifier) -> bool:
    """Check whether each access in a loop moves to the adjacent element or stays at the same
    element from iteration to iteration, and some access moves."""
    strides = [_stride(access, loop.var, simplifier) for access in accesses(loop.body)]
    return all(stride in (0, 1) for stride in strides) and 1 in strides


def _stride(access: Access, var: str, simplifier: Simplifier) -> Extent | None:
    """Return the distance in elements between the accesses of two successive iterations; None if
    the distance is not constant."""
    buffer = access.buffer
    stride: Extent = 0
    for axis, index in enumerate(access.indices):
        for atom, factor in simplifier.linear(index).terms.items():
            if atom == Var(var):
                stride += factor * product(buffer.shape[axis + 1 :])
            elif var in variables(atom):
                return None
    return stride if stride == 0 or buffer.is_plain else None


def _is_exact(loop: For) -> bool:
    """Check whether a loop contains no floating-point sum, whose result depends on the order of
    iterations."""
    for stmt in walk_stmts(loop.body):
        if isinstance(stmt, Store) and stmt.buffer.dtype.is_float:
            update = reduction(stmt)
            is_shared = not any(loop.var in variables(index) for index in stmt.indices)
            if is_shared and update is not None and update[0] in _ROUNDED:
                return False
    return True


def _is_legal(function: Function, loop: For) -> bool:
    try:
        vectorize(function, loop.var)
    except ScheduleError:
        return False
    return True
