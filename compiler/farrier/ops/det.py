"""Det: the determinants of square matrices."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import number as number_of
from farrier.ir.dim import product
from farrier.ir.graph import Node
from farrier.ir.types import TensorType
from farrier.ops.nest import LoopBuilder
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
from farrier.ops.scalar import magnitude, number, unequal


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    x = required(types, 0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not isinstance(x.shape[-1], int):
        raise Mismatch(f"input {x.shape} is no square matrix")
    return (TensorType(x.dtype, x.shape[:-2]),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    x = present(arrays, 0)
    return (np.asarray(np.linalg.det(x.astype(np.float64)), x.dtype),)


def _nest(nest: LoopBuilder, node: Node) -> None:
    """Gaussian elimination with the largest pivot of each column, one matrix a thread."""
    shape = nest.shape(0)
    size, count = number_of(shape[-1]), product(shape[:-2])
    x, out = nest.input(0, (count, size, size)), nest.output(0, (count,))
    with nest.parallel(count) as (matrix,):
        rows = nest.local("rows", (size, size), x.dtype)
        with nest.for_(size) as i, nest.vector(size) as j:
            rows[i, j] = x[matrix, i, j]
        result = nest.variable(number(1, x.dtype), "result")
        with nest.for_(size) as column:
            chosen = nest.variable(column, "chosen")
            with nest.for_(size) as i:
                larger = magnitude(rows[chosen.value, column]) < magnitude(rows[i, column])
                with nest.if_(column < i), nest.if_(larger):
                    chosen.value = i
            with nest.if_(unequal(chosen.value, column)):
                result.value = -result.value
                with nest.for_(size) as j:
                    kept = nest.let(rows[column, j])
                    rows[column, j] = rows[chosen.value, j]
                    rows[chosen.value, j] = kept
            pivot = nest.let(rows[column, column], "pivot")
            result.value = result.value * pivot
            with nest.if_(unequal(pivot, 0)), nest.for_(size) as i, nest.if_(column < i):
                factor = nest.let(rows[i, column] / pivot, "factor")
                with nest.vector(size) as j:
                    rows[i, j] = rows[i, j] - factor * rows[column, j]
        out[matrix] = result.value


OPERATORS: tuple[Operator, ...] = (
    Operator("Det", Kind.NEST, _infer, _reference, None, nest=_nest),
)
