"""The layout of a factor of a product in memory, by which threads copy it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Extent
from farrier.ir.expr import Const, Expr, Load, Select, Var, dtype_of
from farrier.ir.substitute import loads, variables
from farrier.schedule.declared_product import as_held
from farrier.schedule.product import Product

CHUNK_BYTES = 16  # The longest access of a thread, and the row of a matrix that a subgroup reads.


@dataclasses.dataclass(frozen=True)
class Source:
    """The layout of a factor in memory: neighbouring elements are consecutive terms of the sum if
    `along_terms`, else consecutive rows or columns, and a thread copies `several` elements at once.
    The factor is `value` where the `guard` holds, and 0 elsewhere; the guard of all elements that
    are copied at once is the same. Without a guard the factor is `value` everywhere.
    """

    value: Expr
    guard: Expr | None
    along_terms: bool
    several: int
    is_whole: bool  # True if each run of that many is a chunk of memory, at a multiple of its size.
    axis: int  # Of the buffer, along which neighbours lie.

    @classmethod
    def of(cls, product: Product, side: int) -> Source:
        axes = (product.rows, product.columns)[side].axes
        value = as_held((product.rows, product.columns)[side].value)
        guard, guarded = _parted(value)
        most = CHUNK_BYTES // dtype_of(value).nbytes
        terms, own = (_neighbours(guarded, each, guard) for each in (product.sums, axes))
        along_terms = terms > 0 and (terms >= own or own == 0)
        several = math.gcd(most, max(1, terms if along_terms else own))
        inner = [name for name, extent in (product.sums if along_terms else axes) if extent != 1]
        if guard is not None and several > 1 and inner[-1] not in variables(guard):
            value = guarded
        else:
            guard = None
        is_whole = isinstance(value, Load) and several == most and _is_even(value, several)
        read = next(iter(loads(value)), None)
        has_axes = read is not None and len(read.indices) > 0
        axis = read.buffer.element_layout.dims[-1].axis if read is not None and has_axes else -1
        return cls(value, guard, along_terms, several, is_whole and has_axes, axis)


def _parted(value: Expr) -> tuple[Expr | None, Expr]:
    """Split an expression that is 0 unless a condition holds: return the condition, and the
    expression for the case that it holds. If the expression has another form, return None and the
    expression."""
    if isinstance(value, Select):
        otherwise = value.otherwise
        if isinstance(otherwise, Const) and not otherwise.value:
            return value.condition, value.then
    return None, value


def _is_even(read: Load, several: int) -> bool:
    """Check that every aligned run of `several` elements starts at a multiple of `several`: all
    strides other than 1 and the offset are multiples of it."""
    buffer = read.buffer
    is_dense = buffer.element_layout.is_permutation and buffer.element_layout == buffer.layout
    if not (is_dense or buffer.layout is None):
        return False
    if not all(isinstance(n, int) for n in buffer.shape):
        return False
    place = flatten(buffer, read.indices, Simplifier({}), 1)
    steps = [step for step in place.terms.values() if step != 1]
    return all(isinstance(step, int) and step % several == 0 for step in (*steps, place.const))


def _neighbours(value: Expr, axes: Sequence[tuple[str, Extent]], guard: Expr | None) -> int:
    """Return the largest number of neighbouring elements, along the flattened `axes`, that are
    contiguous in memory and have the same value of `guard`. The elements start at a multiple of
    that number. Return 0 if not even two elements are contiguous."""
    long = [(name, extent) for name, extent in axes if extent != 1]
    read = next(iter(loads(value)), None)
    if not long or read is None or not read.indices:
        return 0
    ranges = dict(axes)
    place = flatten(read.buffer, read.indices, Simplifier(ranges), 1)
    if place.terms.get(Var(long[-1][0])) != 1:
        return 0
    apart = variables(guard) if guard is not None else set()
    run: Extent = 1
    for name, extent in reversed(long):
        is_next = place.terms.get(Var(name)) == run and isinstance(extent, int)
        if not is_next or (run != 1 and name in apart):
            break
        run = run * extent
    return run if isinstance(run, int) else 1
