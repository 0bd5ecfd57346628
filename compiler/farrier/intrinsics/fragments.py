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
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from farrier.intrinsics.declare import TensorIntrinsic, rendered
from farrier.ir.dim import number
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
    add,
    floordiv,
    index,
    mod,
    mul,
)
from farrier.ir.loop import Stmt, Store
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.ir.types import DType, Layout, PhysicalDim

FactorType: TypeAlias = tuple[DType, UnaryOp | None]
_Digit: TypeAlias = tuple[PhysicalDim, int, int]
_WHY_NO_EMITTER = "a product of fragments is not an instruction of one thread"


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

    @property
    def keeps_places(self) -> bool:
        """Check whether the thread that has the total of a row and a column also has the element of
        `a` there, so that totals become a factor without an exchange between threads."""
        if self.total is not DType.F32 or self.left not in (DType.F16, DType.BF16):
            return False
        of_c = _digits(self.c, (self.rows, self.columns))
        of_a = _digits(self.a, (self.rows, self.depth))
        count = _count_thread_dims(of_a)
        within = of_a[count:]  # Further columns of totals are those of the next factor.
        same = [_spans(of_c[:count]) == _spans(of_a[:count])]
        same.append(_spans(of_c[-len(within) :]) == _spans(within))
        return all(same) and _count_thread_dims(of_c) == count


def _count_thread_dims(digits: Sequence[_Digit]) -> int:
    """Return the number of leading dimensions that select a thread."""
    threads = list(itertools.accumulate((extent for _, extent, _ in digits), operator.mul))
    return threads.index(SUBGROUP_SIZE) + 1


def _spans(digits: Sequence[_Digit]) -> list[tuple[int, int, int]]:
    return [(dim.axis, dim.div, extent) for dim, extent, _ in digits]


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


def own_name(product: str) -> str:
    """Return the name of the tensor intrinsic by which each thread copies its elements of c to
    registers: own[lane, i] = c[m, n]."""
    return f"{product}_own"


def put_name(product: str) -> str:
    """Return the name of the inverse tensor intrinsic: c[m, n] = own[lane, i]."""
    return f"{product}_put"


def factor_name(product: str) -> str:
    """Return the name of the tensor intrinsic that makes a factor of elements that threads have in
    registers: a[m, k] = own[lane, i], rounded to the type of the factor."""
    return f"{product}_factor"


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
    if product.keeps_places:
        yield from _registers(product, a, c)
    for across in (False, True) if product.reads_across else (False,):
        for side, (fragment, own, extent) in enumerate(((a, "m", rows), (b, "n", columns))):
            at: tuple[Expr, ...] = (k, Var(own)) if across else (Var(own), k)
            held = _memory(fragment.dtype, (depth, extent) if across else (extent, depth))
            point = (m, k) if side == 0 else (k, n)
            loops = ((own, extent), ("k", depth))
            name = load_name(product.name, side, across)
            body = Store(fragment, point, Load(held, at))
            yield _intrinsic(product, name, (fragment, held), loops, body)


def _registers(product: FragmentProduct, a: Buffer, c: Buffer) -> Iterator[TensorIntrinsic]:
    """Yield the intrinsics between fragments and the registers of threads."""
    m, n, k, lane, at = (Var(name) for name in ("m", "n", "k", "lane", "i"))
    rows, columns, depth = product.rows, product.columns, product.depth
    own = _own(rows * columns)
    count = number(own.shape[1])
    element = Load(c, _element(product.c, (rows, columns), lane, at))
    over = (("lane", SUBGROUP_SIZE), ("i", count))
    yield _intrinsic(
        product, own_name(product.name), (own, c), over, Store(own, (lane, at), element)
    )
    held = Load(own, _place(product.c, (rows, columns), (m, n)))
    over = (("m", rows), ("n", columns))
    yield _intrinsic(product, put_name(product.name), (c, own), over, Store(c, (m, n), held))
    part = _own(rows * depth)
    held = Load(part, _place(product.a, (rows, depth), (m, k)))
    body = Store(a, (m, k), Cast(product.left, held))
    over = (("m", rows), ("k", depth))
    yield _intrinsic(product, factor_name(product.name), (a, part), over, body)


def _own(elements: int) -> Buffer:
    """Return the elements that the threads of a subgroup have in registers."""
    shape = (SUBGROUP_SIZE, elements // SUBGROUP_SIZE)
    return Buffer("own", DType.F32, shape, Layout.plain(2), MemoryScope.SUBGROUP)


def _digits(layout: Layout, shape: tuple[int, int]) -> list[_Digit]:
    """Return each dimension of a layout with its extent, and its step in the number of a thread or
    in that of an element within the thread."""
    extents = [number(extent) for extent in layout.physical_shape(shape)]
    steps = [math.prod(extents[at + 1 :]) for at in range(len(extents))]
    each = math.prod(shape) // SUBGROUP_SIZE
    return [
        (dim, extent, step // each if step >= each else step)
        for dim, extent, step in zip(layout.dims, extents, steps, strict=True)
    ]


def _place(layout: Layout, shape: tuple[int, int], point: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Return the number of the thread that has an element of a fragment, and the number of the
    element within the thread."""
    lane, at, threads = index(0), index(0), 1
    for dim, extent, step in _digits(layout, shape):
        digit = floordiv(point[dim.axis], dim.div)
        digit = mod(digit, extent) if dim.mod else digit
        if threads < SUBGROUP_SIZE:
            lane = add(lane, mul(digit, step))
        else:
            at = add(at, mul(digit, step))
        threads *= extent
    return lane, at


def _element(layout: Layout, shape: tuple[int, int], lane: Expr, at: Expr) -> tuple[Expr, Expr]:
    """Return the row and the column of an element that a thread has; the inverse of `_place`."""
    point = [index(0), index(0)]
    threads = 1
    for dim, extent, step in _digits(layout, shape):
        of = lane if threads < SUBGROUP_SIZE else at
        digit = mod(floordiv(of, step), extent)
        point[dim.axis] = add(point[dim.axis], mul(digit, dim.div))
        threads *= extent
    return point[0], point[1]


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
    return rendered(name, operands, loops, body, product.feature, _WHY_NO_EMITTER)
