"""Matrix products: MatMul (batched, broadcasting) and Gemm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farrier.ir.expr import Buffer, Expr, Reduce
from farrier.ir.graph import Node
from farrier.ir.types import DType, Shape, TensorType
from farrier.ops.builder import Builder, factor, total, without_halo
from farrier.ops.conversion import np_whole, whole
from farrier.ops.derivative import Adjoint
from farrier.ops.operator import (
    Array,
    Arrays,
    Attrs,
    Buffers,
    Constants,
    Kind,
    Mismatch,
    Operator,
    Types,
    accumulator,
    fail_to_agree,
    float_attr,
    optional,
    present,
    required,
    rounded,
    widened,
)
from farrier.ops.pointwise import broadcast_shapes
from farrier.ops.scalar import Scalar, cast
from farrier.ops.traits import Product

_WIDENED = 1 << 23  # The elements of a factor that are widened at once.


def _infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    a, b = required(types, 0), required(types, 1)
    dtype = accumulator(a.dtype, b.dtype, attrs)
    if not a.rank or not b.rank:
        raise Mismatch(f"factors {a.shape} and {b.shape} must not be scalars")
    left = a.shape if a.rank > 1 else (1, *a.shape)
    right = b.shape if b.rank > 1 else (*b.shape, 1)
    if fail_to_agree(left[-1], right[-2]):
        raise Mismatch(f"factors {a.shape} and {b.shape} differ in their inner extent")
    batch = broadcast_shapes(left[:-2], right[:-2])
    rows = left[-2:-1] if a.rank > 1 else ()
    columns = right[-1:] if b.rank > 1 else ()
    return (TensorType(dtype, (*batch, *rows, *columns)),)


def _reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    a, b = (widened(present(arrays, position), attrs) for position in (0, 1))
    with np.errstate(all="ignore"):
        return (rounded(_product(a, b), attrs),)


def _product(a: Array, b: Array) -> Array:
    """Compute `a @ b` in the wider dtype of the two. Large weights are widened one block of columns
    at a time to limit memory."""
    columns = max(1, _WIDENED // max(1, b.shape[0]))
    if b.ndim != 2 or a.dtype != np.float64 or b.dtype != np.float32 or b.shape[1] <= columns:
        return np.asarray(np.matmul(a, b))
    starts = range(0, b.shape[1], columns)
    blocks = [np.matmul(a, b[:, at : at + columns].astype(a.dtype)) for at in starts]
    return np.concatenate(blocks, -1)


def _compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    a, b = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    rank, dtype = node.outputs[0].type.rank, node.outputs[0].type.dtype
    rows, columns = int(a.rank > 1), int(b.rank > 1)
    batch = rank - rows - columns

    def body(*at: Expr) -> Reduce:
        lead, m, n = at[:batch], at[batch : batch + rows], at[batch + rows :]

        def product(k: Expr) -> Scalar:
            left = _batch(a.shape[:-2], lead) if rows else ()
            right = _batch(b.shape[:-2], lead) if columns else ()
            rows_of, columns_of = a(*left, *m, k), b(*right, k, *n)
            return factor(node, rows_of, dtype) * factor(node, columns_of, dtype)

        return total({"k": a.shape[-1]}, product)

    axes = (*(f"b{i}" for i in range(batch)), *("m",) * rows, *("n",) * columns)
    return (builder.output(node, body, axes=axes),)


def _batch(shape: Shape, lead: tuple[Expr, ...]) -> tuple[int | Expr, ...]:
    """Return the indices of a factor's batch axes, whose extents are `shape`, for the output's
    batch indices `lead`. Batch axes are aligned at the end; an axis of extent 1 is broadcast."""
    aligned = lead[len(lead) - len(shape) :]
    return tuple(0 if extent == 1 else i for extent, i in zip(shape, aligned, strict=True))


def _gemm_infer(types: Types, constants: Constants, attrs: Attrs) -> tuple[TensorType, ...]:
    a, b = required(types, 0), required(types, 1)
    dtype = accumulator(a.dtype, b.dtype, attrs)
    if len(types) > 2 and types[2] is not None and types[2].dtype is not dtype:
        raise Mismatch(f"the product is {dtype} and the addend {types[2].dtype}")
    if a.rank != 2 or b.rank != 2:
        raise Mismatch(f"factors {a.shape} and {b.shape} must be matrices")
    rows, inner = a.shape[:: -1 if attrs.get("transA", 0) else 1]
    inner_b, columns = b.shape[:: -1 if attrs.get("transB", 0) else 1]
    if fail_to_agree(inner, inner_b):
        raise Mismatch(f"factors {a.shape} and {b.shape} differ in their inner extent")
    if len(types) > 2 and types[2] is not None:
        added = types[2].shape
        if broadcast_shapes(added, (rows, columns)) != (rows, columns):
            raise Mismatch(f"the addend {added} does not broadcast to {(rows, columns)}")
    return (TensorType(dtype, (rows, columns)),)


def _gemm_reference(arrays: Arrays, attrs: Attrs) -> tuple[Array, ...]:
    a, b = (widened(present(arrays, position), attrs) for position in (0, 1))
    c = optional(arrays, 2)
    product = _product(
        *(
            factor.T if attrs.get(transposed, 0) else factor
            for factor, transposed in ((a, "transA"), (b, "transB"))
        )
    )
    alpha, beta = (float_attr(attrs, name, 1.0) for name in ("alpha", "beta"))
    if product.dtype.kind in "iu":
        if (alpha, beta) != (1, 1):  # The factors are fractions.
            real = product * alpha + (0.0 if c is None else c * beta)
            return (np_whole(real, DType.from_numpy(product.dtype)),)
        return (product if c is None else product + c,)
    product = (product * alpha).astype(a.dtype, copy=False)
    if c is not None:
        product = product + (c * beta).astype(a.dtype, copy=False)
    return (rounded(product, attrs),)


def _gemm_compute(builder: Builder, node: Node, inputs: Buffers) -> tuple[Buffer, ...]:
    a, b = builder.operand(node, inputs, 0), builder.operand(node, inputs, 1)
    c = builder.optional(node, inputs, 2)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    trans_a, trans_b = node.attr("transA", 0), node.attr("transB", 0)
    inner, dtype = a.shape[0 if trans_a else 1], node.outputs[0].type.dtype

    def body(m: Expr, n: Expr) -> Reduce:
        def product(k: Expr) -> Scalar:
            left = a(k, m) if trans_a else a(m, k)
            right = b(n, k) if trans_b else b(k, n)
            return factor(node, left, dtype) * factor(node, right, dtype)

        return total({"k": inner}, product)

    if c is None and alpha == 1:
        return (builder.output(node, body, axes=("m", "n")),)
    out = node.outputs[0].type
    raw = builder.local(
        "gemm",
        out.shape,
        out.dtype,
        body,
        axes=("m", "n"),
        layout=without_halo(out.layout),
    )

    def epilogue(m: Expr, n: Expr) -> Scalar:
        if dtype.is_integer and (alpha, beta) != (1, 1):  # The factors are fractions.
            real = cast(raw(m, n), DType.F64) * alpha
            real = real if c is None else real + cast(c.broadcast(m, n), DType.F64) * beta
            return whole(real, dtype)
        value = raw(m, n) if alpha == 1 else raw(m, n) * alpha
        if c is None or beta == 0:
            return value
        addend = c.broadcast(m, n)
        return value + (addend if beta == 1 else addend * beta)

    return (builder.output(node, epilogue, hint="gemm_bias", axes=("m", "n")),)


def _transposed(s: Adjoint, name: str) -> str:
    """Add a node that swaps the last two axes of a matrix or of a batch of matrices, and return its
    result."""
    rank = len(s.shape(name))
    return s("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))


def _derivative(s: Adjoint) -> Sequence[str]:
    """Return the gradients of both factors. A vector is treated as a matrix: the left factor as a
    single row, the right factor as a single column."""
    (a, b), (left, right) = s.operands, s.shapes
    by_shape = s.shape(s.by)
    if len(right) == 1:
        b, by_shape = s.reshaped(b, (right[0], 1)), (*by_shape, 1)
    if len(left) == 1:
        a, by_shape = s.reshaped(a, (1, left[0])), (*by_shape[:-1], 1, by_shape[-1])
    by = s.reshaped(s.by, by_shape)
    by_a, by_b = s("MatMul", by, _transposed(s, b)), s("MatMul", _transposed(s, a), by)
    by_a, by_b = s.summed_to(by_a, s.shape(a)), s.summed_to(by_b, s.shape(b))
    return [s.reshaped(by_a, left), s.reshaped(by_b, right)]


def _gemm_derivative(s: Adjoint) -> Sequence[str]:
    a, b = s.operands[:2]
    turns = [bool(s.node.attr(name, 0)) for name in ("transA", "transB")]
    by = s("Mul", s.by, float(s.node.attr("alpha", 1.0)))
    by_a = s("MatMul", by, b if turns[1] else _transposed(s, b))
    by_b = s("MatMul", a if turns[0] else _transposed(s, a), by)
    shares = [
        _transposed(s, share) if is_turned else share
        for share, is_turned in zip((by_a, by_b), turns, strict=True)
    ]
    return [*shares, s("Mul", s.by, float(s.node.attr("beta", 1.0)))]


MATMUL = Operator(
    "MatMul",
    Kind.CONTRACTION,
    _infer,
    _reference,
    _compute,
    product=Product.MATRIX,
    derivative=_derivative,
)
GEMM = Operator(
    "Gemm",
    Kind.CONTRACTION,
    _gemm_infer,
    _gemm_reference,
    _gemm_compute,
    product=Product.MATRIX,
    derivative=_gemm_derivative,
)
OPERATORS: tuple[Operator, ...] = (MATMUL, GEMM)
