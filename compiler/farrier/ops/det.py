"""The determinant and the inverse of square matrices, by Gaussian elimination."""

from __future__ import annotations

import contextlib

import numpy as np

from farrier.ir.dim import number as number_of
from farrier.ir.dim import product
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.nest import LoopBuilder, Tensor
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    present,
    required,
)
from farrier.ops.scalar import Scalar, cast, equal, magnitude, number, unequal


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not isinstance(x.shape[-1], int):
        raise Mismatch(f"input {x.shape} is no square matrix")
    return (TensorType(x.dtype, x.shape[:-2]),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    return (np.asarray(np.linalg.det(x.astype(np.float64)), x.dtype),)


def _largest(nest: LoopBuilder, rows: Tensor, size: int, column: Scalar) -> Scalar:
    """Return the index of the row with the element of largest magnitude in `column`, among the rows
    from the diagonal on: the pivot.
    """
    chosen = nest.variable(column, "chosen")
    with nest.for_(size) as i:
        larger = magnitude(rows[chosen.value, column]) < magnitude(rows[i, column])
        with nest.if_(column < i), nest.if_(larger):
            chosen.value = i
    return chosen.value


def _exchange(nest: LoopBuilder, rows: Tensor, width: int, first: Scalar, second: Scalar) -> None:
    """Exchange two rows of `width` elements."""
    with nest.for_(width) as j:
        kept = nest.let(rows[first, j])
        rows[first, j] = rows[second, j]
        rows[second, j] = kept


def _det(nest: LoopBuilder, node: Node) -> None:
    """Write the loops of Det: Gaussian elimination with partial pivoting of each matrix of a
    batch."""
    shape = nest.shape(0)
    size, count = number_of(shape[-1]), product(shape[:-2])
    x, out = nest.input(0, (count, size, size)), nest.output(0, (count,))
    with nest.for_(count, "matrix") as matrix:
        rows = nest.local("rows", (size, size), x.dtype)
        with nest.for_(size) as i, nest.for_(size, "j") as j:
            rows[i, j] = x[matrix, i, j]
        result = nest.variable(number(1, x.dtype), "result")
        with nest.for_(size) as column:
            chosen = _largest(nest, rows, size, column)
            with nest.if_(unequal(chosen, column)):
                result.value = -result.value
                _exchange(nest, rows, size, column, chosen)
            pivot = nest.let(rows[column, column], "pivot")
            result.value = result.value * pivot
            with nest.if_(unequal(pivot, 0)), nest.for_(size) as i, nest.if_(column < i):
                factor = nest.let(rows[i, column] / pivot, "factor")
                with nest.for_(size, "j") as j:
                    rows[i, j] = rows[i, j] - factor * rows[column, j]
        out[matrix] = result.value


def _inverse_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    _infer(types, constants, attrs)
    return (required(types, 0),)


def _inverse_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    result = np.full(x.shape, np.nan)
    for at in np.ndindex(x.shape[:-2]):
        with contextlib.suppress(np.linalg.LinAlgError):  # A singular matrix keeps its NaNs.
            result[at] = np.linalg.inv(x[at].astype(np.float64))
    return (result.astype(x.dtype),)


def _inverse(nest: LoopBuilder, node: Node) -> None:
    """Write the loops that invert each matrix by Gauss-Jordan elimination with partial pivoting.
    The matrix and the identity are placed side by side, [matrix | identity]. The row operations
    that turn the left half into the identity turn the right half into the inverse."""
    shape = nest.shape(0)
    size, count = number_of(shape[-1]), product(shape[:-2])
    x, out = nest.input(0, (count, size, size)), nest.output(0, (count, size, size))
    width = 2 * size
    with nest.for_(count, "matrix") as matrix:
        rows = nest.local("rows", (size, width), x.dtype)
        with nest.for_(size) as i, nest.for_(size) as j:
            rows[i, j] = x[matrix, i, j]
            rows[i, size + j] = cast(equal(i, j), x.dtype)
        with nest.for_(size) as column:
            chosen = _largest(nest, rows, size, column)
            with nest.if_(unequal(chosen, column)):
                _exchange(nest, rows, width, column, chosen)
            pivot = nest.let(rows[column, column], "pivot")
            with nest.for_(width, "j") as j:
                rows[column, j] = rows[column, j] / pivot
            with nest.for_(size) as i, nest.if_(unequal(i, column)):
                factor = nest.let(rows[i, column], "factor")
                with nest.for_(width, "j") as j:
                    rows[i, j] = rows[i, j] - factor * rows[column, j]
        with nest.for_(size) as i, nest.for_(size, "j") as j:
            out[matrix, i, j] = rows[i, size + j]


OPERATORS: tuple[Operator, ...] = (
    Operator("Det", Kind.NEST, _infer, _reference, None, nest=_det),
    Operator("Inverse", Kind.NEST, _inverse_infer, _inverse_reference, None, nest=_inverse),
)
