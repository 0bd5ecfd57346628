"""The declaration of matrix products that the 128 threads of a warpgroup compute together, with
both factors in workgroup memory.

    c[m, n] += a[m, k] * b[n, k]        c in registers, spread over the warpgroup

The products are asynchronous: a call starts one, and a barrier of the warpgroup waits for it.
`declared` returns the intrinsics of a product: zero the sums, multiply, and store some columns of
the sums to workgroup memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from farrier.intrinsics.declare import TensorIntrinsic, rendered
from farrier.intrinsics.fragments import FactorType, store_name, zero_name
from farrier.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Stmt, Store
from farrier.ir.types import DType, Layout, PhysicalDim

ROWS = 64
ROW_BYTES = 128  # Of a factor in workgroup memory.
# The elements of a fragment: a subgroup has 16 rows, and a thread pairs of neighbours in a row.
SUMS = Layout(
    (
        PhysicalDim(0, 16),
        PhysicalDim(0, 1, 8),
        PhysicalDim(1, 2, 4),
        PhysicalDim(1, 8),
        PhysicalDim(0, 8, 2),
        PhysicalDim(1, 1, 2),
    )
)
_WHY_NO_EMITTER = "a product of a warpgroup is not an instruction of one thread"


@dataclasses.dataclass(frozen=True, slots=True)
class WarpgroupProduct:
    """A matrix product with ROWS rows. If `reads_across` is true, a factor in memory may also have
    k as its first axis. `stored` is the number of columns that are stored at once."""

    name: str
    left: DType
    right: DType
    total: DType
    columns: int
    depth: int
    reads_across: bool
    stored: int
    feature: str  # The feature that the target must have.
    rounding: ClassVar[None] = None  # Factors are multiplied as they lie in memory.

    @property
    def factors(self) -> tuple[FactorType, FactorType]:
        """The types of both factors in memory, and their roundings."""
        return (self.left, None), (self.right, None)


def product_name(product: str, across: Sequence[bool]) -> str:
    """Return the name of the tensor intrinsic that multiplies; `across` are the factors whose
    memory has k as its first axis."""
    sides = "".join(name for name, is_across in zip("ab", across, strict=True) if is_across)
    return f"{product}_across_{sides}" if sides else product


def declared(products: Iterable[WarpgroupProduct]) -> tuple[TensorIntrinsic, ...]:
    """Return the tensor intrinsics of all `products`."""
    return tuple(each for product in products for each in _declared(product))


def _declared(product: WarpgroupProduct) -> Iterator[TensorIntrinsic]:
    m, n, k = Var("m"), Var("n"), Var("k")
    columns, depth, stored = product.columns, product.depth, product.stored
    c = Buffer("c", product.total, (ROWS, columns), SUMS, MemoryScope.WARPGROUP)
    zero = Const(0.0 if product.total.is_float else 0, product.total)
    over_c = (("m", ROWS), ("n", columns))
    yield _intrinsic(product, zero_name(product.name), (c,), over_c, Store(c, (m, n), zero))

    part = dataclasses.replace(c, shape=(ROWS, stored))
    memory = Buffer("memory", product.total, (ROWS, stored), None, MemoryScope.WORKGROUP)
    body = Store(memory, (m, n), Load(part, (m, n)))
    over_part = (("m", ROWS), ("n", stored))
    yield _intrinsic(product, store_name(product.name), (memory, part), over_part, body)

    kinds = (False, True) if product.reads_across else (False,)
    for across in itertools.product(kinds, kinds):
        factors, values = [], []
        for side, (dtype, own, extent) in enumerate(
            ((product.left, m, ROWS), (product.right, n, columns))
        ):
            shape = (depth, extent) if across[side] else (extent, depth)
            at: tuple[Expr, ...] = (k, own) if across[side] else (own, k)
            factor = Buffer("ab"[side], dtype, shape, None, MemoryScope.WORKGROUP)
            factors.append(factor)
            values.append(Cast(product.total, Load(factor, at)))
        value = Binary(BinaryOp.ADD, Load(c, (m, n)), Binary(BinaryOp.MUL, *values))
        name, loops = product_name(product.name, across), (*over_c, ("k", depth))
        yield _intrinsic(product, name, (c, *factors), loops, Store(c, (m, n), value))


def _intrinsic(
    product: WarpgroupProduct,
    name: str,
    operands: Sequence[Buffer],
    loops: Sequence[tuple[str, int]],
    body: Stmt,
) -> TensorIntrinsic:
    return rendered(name, operands, loops, body, product.feature, _WHY_NO_EMITTER)
