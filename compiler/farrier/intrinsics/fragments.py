"""The declaration of matrix products that the threads of a subgroup compute together, on tiles
called fragments.

    c[m, n] += a[m, k] * b[k, n]        for tiles in registers, spread over the subgroup

A fragment is a tile whose elements are distributed over the registers of all threads of a subgroup.
Its declared layout defines the distribution: the leading dimensions, with one element for each
thread, select the thread, and the others select the element within the thread. `declared` returns
the intrinsics of a product: zero the totals, load either factor from workgroup memory, multiply,
and store the totals there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from farrier.errors import CompilerError
from farrier.intrinsics.declare import TensorIntrinsic, Writer
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.instr import Operand
from farrier.ir.loop import For, Function, LoopKind, Stmt, Store
from farrier.ir.types import DType, Layout

FactorType: TypeAlias = tuple[DType, UnaryOp | None]


@dataclasses.dataclass(frozen=True, slots=True)
class FragmentProduct:
    """A matrix product of fragments, with the layouts of the factors `a` and `b` and of the totals
    `c`. If `reads_across` is true, a factor in memory may also have k as its first axis. The
    factors are rounded by `rounding`, if any, before they are multiplied."""

    name: str
    left: DType
    right: DType
    total: DType
    rows: int
    columns: int
    depth: int
    a: Layout
    b: Layout
    c: Layout
    reads_across: bool
    # The most main-loop iterations whose factors fit in workgroup memory at once; 1 if the device
    # has no asynchronous copies.
    stages: int
    feature: str  # The feature that the target must have.
    rounding: UnaryOp | None = None

    @property
    def factors(self) -> tuple[FactorType, FactorType]:
        """The types of the factors in memory, and the rounding before the product."""
        return (self.left, self.rounding), (self.right, self.rounding)


def zero_name(product: str) -> str:
    """Return the name of the tensor intrinsic that computes c[m, n] = 0."""
    return f"{product}_zero"


def store_name(product: str) -> str:
    """Return the name of the tensor intrinsic that computes memory[m, n] = c[m, n]."""
    return f"{product}_store"


def load_name(product: str, side: int, across: bool) -> str:
    """Return the name of the tensor intrinsic that loads a factor: a[m, k] = memory[m, k] for
    `side` 0, or b[k, n] = memory[n, k] for `side` 1. If `across` is true, the memory has k as its
    first axis."""
    return f"{product}_{('a', 'b')[side]}{'_across' if across else ''}"


def declared(products: Iterable[FragmentProduct]) -> tuple[TensorIntrinsic, ...]:
    """Return the tensor intrinsics of all `products`."""
    return tuple(each for product in products for each in _declared(product))


def _declared(product: FragmentProduct) -> Iterator[TensorIntrinsic]:
    m, n, k = Var("m"), Var("n"), Var("k")
    rows, columns, depth = product.rows, product.columns, product.depth
    a = _fragment("a", product.left, (rows, depth), product.a)
    b = _fragment("b", product.right, (depth, columns), product.b)
    c = _fragment("c", product.total, (rows, columns), product.c)
    memory = _memory(product.total, (rows, columns))
    zero = Const(0.0 if product.total.is_float else 0, product.total)
    over_c = (("m", rows), ("n", columns))

    yield _intrinsic(product, zero_name(product.name), (c,), over_c, Store(c, (m, n), zero))
    stored = Store(memory, (m, n), Load(c, (m, n)))
    yield _intrinsic(product, store_name(product.name), (memory, c), over_c, stored)
    factors = (_multiplied(product, Load(a, (m, k))), _multiplied(product, Load(b, (k, n))))
    value = Binary(BinaryOp.ADD, Load(c, (m, n)), Binary(BinaryOp.MUL, *factors))
    body = Store(c, (m, n), value)
    yield _intrinsic(product, product.name, (c, a, b), (*over_c, ("k", depth)), body)
    for across in (False, True) if product.reads_across else (False,):
        for side, (fragment, own, extent) in enumerate(((a, "m", rows), (b, "n", columns))):
            at: tuple[Expr, ...] = (k, Var(own)) if across else (Var(own), k)
            held = _memory(fragment.dtype, (depth, extent) if across else (extent, depth))
            point = (m, k) if side == 0 else (k, n)
            loops = ((own, extent), ("k", depth))
            name = load_name(product.name, side, across)
            body = Store(fragment, point, Load(held, at))
            yield _intrinsic(product, name, (fragment, held), loops, body)


def _multiplied(product: FragmentProduct, element: Load) -> Expr:
    wide = Cast(product.total, element) if element.buffer.dtype is not product.total else element
    return wide if product.rounding is None else Unary(product.rounding, wide)


def _fragment(name: str, dtype: DType, shape: tuple[int, int], layout: Layout) -> Buffer:
    return Buffer(name, dtype, shape, layout, MemoryScope.SUBGROUP)


def _memory(dtype: DType, shape: tuple[int, int]) -> Buffer:
    return Buffer("memory", dtype, shape, None, MemoryScope.WORKGROUP)


def _intrinsic(
    product: FragmentProduct,
    name: str,
    operands: Sequence[Buffer],
    loops: Sequence[tuple[str, int]],
    body: Stmt,
) -> TensorIntrinsic:
    for variable, extent in reversed(loops):
        body = For(variable, extent, LoopKind.SERIAL, body)
    semantics = Function(name, tuple(operands), body)
    return TensorIntrinsic(name, semantics, frozenset({product.feature}), _of_no_thread)


def _of_no_thread(writer: Writer, operands: Sequence[Operand]) -> Operand:
    raise CompilerError("a product of fragments is not an instruction of one thread")
