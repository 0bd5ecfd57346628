"""The declaration of matrix products of whole tiles in registers: the dtypes of their factors, and
the emitter of their code.

    c[m, n] += a[m, k] * b[k, n]        for rows m, lanes n, and the depth k of one instruction

`declared` returns the tensor intrinsics of a product, by which `tensorize` replaces loops: one for
each number of rows and each depth, and others that zero the totals and store them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from farrier.intrinsics.declare import Emit, RowRegisters, TensorIntrinsic, Writer
from farrier.ir.dim import number
from farrier.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Expr, Load, Var
from farrier.ir.instr import Operand
from farrier.ir.loop import For, Function, LoopKind, Stmt, Store
from farrier.ir.types import DType, Layout, PhysicalDim

# (writer, rows) -> a tile of zeros.
EmitZero: TypeAlias = Callable[[Writer, int], Operand]
# (writer, rows, depth, totals, a, b) -> the new totals.
EmitProduct: TypeAlias = Callable[[Writer, int, int, Operand, Operand, Operand], Operand]


@dataclasses.dataclass(frozen=True, slots=True)
class TileProduct:
    """A matrix product of tiles. In the memory of `b`, groups of `group` successive elements along
    k are adjacent. All products of one `family` share the intrinsics that zero totals or store
    them; the names of these begin with `family`."""

    family: str
    name: str
    left: DType
    right: DType
    total: DType
    rows: range  # The possible numbers of rows of a tile.
    lanes: int  # The totals of a row.
    # The possible numbers of products that one instruction adds to each total, best first.
    depths: tuple[int, ...]
    group: int
    features: frozenset[str]  # Required of the target, as in `Target.required_features`.
    # The registers for tiles of a number of rows of totals.
    registers: Callable[[int], RowRegisters]
    zero: EmitZero
    product: EmitProduct

    def zero_name(self, rows: int) -> str:
        """Return the name of the tensor intrinsic that computes c[m, n] = 0 for tiles of `rows`
        rows."""
        return f"{self.family}_zero_{self.total.value}_{rows}"

    def store_name(self, rows: int) -> str:
        """Return the name of the tensor intrinsic that computes memory[m, n] = c[m, n] for tiles of
        `rows` rows."""
        return f"{self.family}_store_{self.total.value}_{rows}"

    def product_name(self, rows: int, depth: int) -> str:
        """Return the name of the tensor intrinsic that adds a[m, k] * b[k, n] to c[m, n], for
        `rows` rows and `depth` values of k."""
        return f"{self.name}_{rows}x{depth}"


def declared(products: Iterable[TileProduct]) -> tuple[TensorIntrinsic, ...]:
    """Return the distinct tensor intrinsics of all `products`."""
    intrinsics = (intrinsic for product in products for intrinsic in _declared(product))
    return tuple({intrinsic.name: intrinsic for intrinsic in intrinsics}.values())


def _declared(product: TileProduct) -> Iterator[TensorIntrinsic]:
    for rows in product.rows:
        yield _zero(product, rows)
        yield _store(product, rows)
        yield from (_product(product, rows, depth) for depth in product.depths)


def _zero(product: TileProduct, rows: int) -> TensorIntrinsic:
    c = Buffer("c", product.total, (rows, product.lanes))
    zero = Const(0.0 if product.total.is_float else 0, product.total)

    def emit(writer: Writer, operands: Sequence[Operand]) -> Operand:
        return product.zero(writer, rows)

    return _intrinsic(product, product.zero_name(rows), (c,), zero, emit)


def _store(product: TileProduct, rows: int) -> TensorIntrinsic:
    shape = (rows, product.lanes)
    memory, c = (Buffer(name, product.total, shape) for name in ("memory", "c"))
    value, name = Load(c, (Var("m"), Var("n"))), product.store_name(rows)
    return _intrinsic(product, name, (memory, c), value, lambda _, operands: operands[1])


def _product(product: TileProduct, rows: int, depth: int) -> TensorIntrinsic:
    point, k = (Var("m"), Var("n")), Var("k")
    group, total = product.group, product.total
    groups = Layout((PhysicalDim(0, group), PhysicalDim(1), PhysicalDim(0, 1, group)))
    layout = groups if group > 1 else None
    c = Buffer("c", total, (rows, product.lanes))
    a = Buffer("a", product.left, (rows, depth))
    b = Buffer("b", product.right, (depth, product.lanes), layout)
    factors = (Cast(total, Load(a, (Var("m"), k))), Cast(total, Load(b, (k, Var("n")))))
    value = Binary(BinaryOp.ADD, Load(c, point), Binary(BinaryOp.MUL, *factors))

    def emit(writer: Writer, operands: Sequence[Operand]) -> Operand:
        totals, left, right = operands
        return product.product(writer, rows, depth, totals, left, right)

    return _intrinsic(product, product.product_name(rows, depth), (c, a, b), value, emit, depth)


def _intrinsic(
    product: TileProduct,
    name: str,
    operands: Sequence[Buffer],
    value: Expr,
    emit: Emit,
    depth: int = 0,
) -> TensorIntrinsic:
    """Return the tensor intrinsic operands[0][m, n] = value, for all rows m and lanes n, and for
    `depth` values of k if `depth` is not 0."""
    output, point = operands[0], (Var("m"), Var("n"))
    rows, lanes = map(number, output.shape)
    body = Store(output, point, value)
    nest: Stmt = For("k", depth, LoopKind.SERIAL, body) if depth else body
    nest = For("n", lanes, LoopKind.SERIAL, nest)
    semantics = Function(name, tuple(operands), For("m", rows, LoopKind.SERIAL, nest))
    return TensorIntrinsic(name, semantics, product.features, emit, product.registers(rows))
