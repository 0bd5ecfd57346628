"""A declared matrix instruction, and the types of the factors that it multiplies."""

from __future__ import annotations

import dataclasses
from typing import TypeGuard

from farrier.intrinsics import lookup
from farrier.intrinsics.fragments import FactorType, load_name
from farrier.ir.dim import number
from farrier.ir.expr import Binary, Cast, Expr, Unary, UnaryOp, dtype_of
from farrier.ir.types import DType
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.schedule.tiling_parts import only_store


@dataclasses.dataclass(frozen=True)
class Declared:
    """A declared matrix instruction: the extents of its fragments and the types of its operands."""

    name: str
    rows: int
    columns: int
    depth: int
    factors: tuple[FactorType, FactorType]
    total: DType
    reads_across: bool

    @classmethod
    def of(cls, nest: NestView, name: str) -> Declared:
        try:
            semantics = lookup(name).semantics
            c, a, _ = semantics.params
        except (KeyError, ValueError):
            nest.fail(f"no product of fragments {name} is declared")
        try:
            lookup(load_name(name, 0, True))
            reads_across = True
        except KeyError:
            reads_across = False
        rows, columns = map(number, c.shape)
        depth = number(a.shape[1])
        term = only_store(semantics.body).value
        assert isinstance(term, Binary)
        assert isinstance(term.right, Binary)
        factors = factor_of(term.right.left), factor_of(term.right.right)
        return cls(name, rows, columns, depth, factors, c.dtype, reads_across)

    def why_not(self, product: Product) -> str:
        """Return why the types of `product` do not match the instruction, as a clause; "" if they
        match."""
        sides = factors_of(product)
        if (sides, product.total.dtype) == (self.factors, self.total):
            return ""
        left, right = (f"{dtype}{f' by {op}' if op else ''}" for dtype, op in sides)
        return f"{self.name} does not multiply {left} and {right} to {product.total.dtype}"


def factors_of(product: Product) -> tuple[FactorType, FactorType]:
    """Return the types of both factors of a product in memory, and their roundings."""
    return factor_of(product.rows.value), factor_of(product.columns.value)


def factor_of(value: Expr) -> FactorType:
    """Return the dtype of a factor in memory, before any cast, and the operator that rounds it."""
    rounding = value.op if _is_rounding(value) else None
    return dtype_of(as_held(value)), rounding


def as_held(value: Expr) -> Expr:
    """Return a factor as it is stored in memory: the expression without its outermost cast or
    rounding."""
    return value.operand if isinstance(value, Cast) or _is_rounding(value) else value


def _is_rounding(value: Expr) -> TypeGuard[Unary]:
    return isinstance(value, Unary) and value.op is UnaryOp.ROUND_TF32
