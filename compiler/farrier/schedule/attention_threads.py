"""The threads' half of attention by matrix instructions: what each thread computes of the scores
and sums that it has in registers."""

from __future__ import annotations

from collections.abc import Callable

from farrier.ir import expr as e
from farrier.ir.dim import number
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    MemoryScope,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.loop import Stmt, Store
from farrier.ir.statements import block
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.ir.types import DType
from farrier.schedule.block_loops import BlockLoops
from farrier.schedule.fragment_attention import FragmentAttention
from farrier.schedule.tiling_parts import ZERO, digits, under, unrolled, within

_LOWEST = e.ReduceOp.MAX.identity(DType.F32)
_NOTHING = Const(0.0, DType.F32)
_OF_ROWS = ("most", "higher", "other", "base", "scale", "total")


class AttentionThreads:
    """The builder of the phases of threads. A thread has elements of the scores and of the last
    product's sums (`own`), and for each of its rows the maximum of the scores so far (`most`) and
    the sum of their exponentials (`total`)."""

    def __init__(self, attention: FragmentAttention, loops: BlockLoops) -> None:
        self._attention, self._loops = attention, loops
        each = attention.places.each
        self.own = tuple(
            self._registers(f"{product.total.name}_own", count * each)
            for product, count in zip(attention.products, attention.parts, strict=True)
        )
        self._few = len(attention.places.rows)
        self._of_rows = {
            name: self._registers(f"{attention.name}_{name}", self._few) for name in _OF_ROWS
        }
        self.buffers = (*self.own, *self._of_rows.values())

    def _registers(self, name: str, count: int) -> Buffer:
        shape = (self._attention.groups, SUBGROUP_SIZE, count)
        return Buffer(name, DType.F32, shape, None, MemoryScope.REGISTER)

    def _elements(self, own: Buffer, body: Callable[[Expr], Stmt]) -> Stmt:
        """Return the unrolled loops over the elements of a thread. Each digit of a number has a
        loop of its own, so that places are sums of loop variables and neighbours are known to be
        neighbours."""
        each = self._attention.places.each
        extents = [number(own.shape[-1]) // each, *[2] * (each.bit_length() - 1)]
        axes = [(self._loops.numbered("ae"), extent) for extent in extents]

        def element(*of_digits: Var) -> Stmt:
            at: Expr = ZERO
            for digit, extent in zip(of_digits, extents, strict=True):
                at = e.add(e.mul(at, extent), digit)
            return body(at)

        return unrolled(axes, element)

    # -- the phases of a slice

    def begin(self) -> Stmt:
        """Return the phase before the first slice, which clears the rows."""
        most, total = self._of_rows["most"], self._of_rows["total"]

        def clear(group: Var, lane: Var) -> Stmt:
            def of_row(row: Var) -> Stmt:
                place = (group, lane, row)
                return block([Store(most, place, _LOWEST), Store(total, place, _NOTHING)])

            return self._loops.unrolled(self._few, of_row)

        return self._loops.threads(clear)

    def mask(self, turn: Var) -> Stmt:
        """Return the phase that computes the scores of slice `turn` from their sums of products,
        and the maxima of each thread."""
        attention, own = self._attention, self.own[0]
        higher, most = self._of_rows["higher"], self._of_rows["most"]

        def of_thread(group: Var, lane: Var) -> Stmt:
            def keep(row: Var) -> Stmt:
                return Store(higher, (group, lane, row), Load(most, (group, lane, row)))

            def element(at: Expr) -> Stmt:
                row, column = attention.point(group, lane, at)
                row, key = attention.row_number(row), e.add(e.mul(turn, attention.keys), column)
                place = (group, lane, at)
                store = Store(own, place, attention.score(row, key, Load(own, place)))
                guard = within(row, attention.products[0].rows.extent, attention.height)
                guard += within(key, attention.count, attention.keys)
                highest = (group, lane, attention.row_of(lane, at))
                either = Binary(BinaryOp.MAX, Load(higher, highest), Load(own, place))
                guarded = under(guard, store, Store(own, place, _LOWEST) if guard else None)
                return block([guarded, Store(higher, highest, either)])

            first = self._loops.unrolled(self._few, keep)
            return block([first, self._elements(own, element)])

        return self._loops.threads(of_thread)

    def join_maxima(self) -> list[Stmt]:
        """Return the phases by which the threads of a row have the maximum of its scores so far."""
        return self._exchanged("higher", BinaryOp.MAX)

    def join_totals(self) -> list[Stmt]:
        """Return the phases by which the threads of a row have the sum of its exponentials."""
        return self._exchanged("total", BinaryOp.ADD)

    def _exchanged(self, name: str, op: BinaryOp) -> list[Stmt]:
        """Return the phases by which the threads of a row join their values."""
        own, other = self._of_rows[name], self._of_rows["other"]
        phases = []
        for mask in self._attention.places.masks:
            for row in range(self._few):

                def exchange(group: Var, lane: Var, mask: int = mask, row: int = row) -> Stmt:
                    partner = Binary(BinaryOp.BIT_XOR, lane, e.index(mask))
                    at = e.index(row)
                    return Store(other, (group, lane, at), Load(own, (group, partner, at)))

                phases.append(self._loops.threads(exchange))

            def join(group: Var, lane: Var) -> Stmt:
                def of_row(at: Var) -> Stmt:
                    place = (group, lane, at)
                    return Store(own, place, Binary(op, Load(own, place), Load(other, place)))

                return self._loops.unrolled(self._few, of_row)

            phases.append(self._loops.threads(join))
        return phases

    def weigh(self) -> Stmt:
        """Return the phase that computes the exponentials of a slice and their sums, and scales the
        sums so far."""
        return self._loops.threads(self._weigh)

    def _weigh(self, group: Var, lane: Var) -> Stmt:
        row_of, named, (own, sums) = self._attention.row_of, self._of_rows, self.own

        def load(name: str, row: Expr) -> Load:
            return Load(named[name], (group, lane, row))

        def weight(at: Expr) -> Stmt:
            place, row = (group, lane, at), row_of(lane, at)
            joined = Binary(BinaryOp.ADD, load("total", row), Load(own, place))
            return block(
                [
                    Store(own, place, _power(Load(own, place), load("base", row))),
                    Store(named["total"], (group, lane, row), joined),
                ]
            )

        def scale(at: Expr) -> Stmt:
            place, row = (group, lane, at), row_of(lane, at)
            return Store(sums, place, Binary(BinaryOp.MUL, Load(sums, place), load("scale", row)))

        return block(
            [
                self._loops.unrolled(self._few, lambda row: self._raise((group, lane, row))),
                self._elements(own, weight),
                self._elements(sums, scale),
            ]
        )

    def _raise(self, place: tuple[Expr, ...]) -> Stmt:
        """Return the statement that raises the maximum of a row, and scales the sum of its
        exponentials accordingly."""
        most, higher, base, scale, total = (
            self._of_rows[name] for name in ("most", "higher", "base", "scale", "total")
        )
        # The difference of two infinities is not a number; a row without scores so far has 0.
        is_empty = Binary(BinaryOp.EQ, Load(higher, place), _LOWEST)
        scaled = Binary(BinaryOp.MUL, Load(total, place), Load(scale, place))
        return block(
            [
                Store(base, place, Select(is_empty, _NOTHING, Load(higher, place))),
                Store(scale, place, _power(Load(most, place), Load(base, place))),
                Store(total, place, scaled),
                Store(most, place, Load(higher, place)),
            ]
        )

    # -- results

    def results(self) -> Stmt:
        """Return the phase in which each thread stores its results."""
        return self._loops.threads(
            lambda group, lane: self._elements(
                self.own[1], lambda at: self._result(group, lane, at)
            )
        )

    def _result(self, group: Var, lane: Var, at: Expr) -> Stmt:
        attention, product = self._attention, self._attention.products[1]
        row, column = attention.point(group, lane, at)
        row = attention.row_number(row)
        total = Load(self._of_rows["total"], (group, lane, attention.row_of(lane, at)))
        value = attention.softmax.normalized(Load(self.own[1], (group, lane, at)), total)
        named: dict[str, Expr] = {name: Var(f"{name}_b") for name, _ in product.batch}
        named |= digits(row, product.rows.axes) | digits(column, product.columns.axes)
        width = attention.parts[1] * attention.declared.columns
        guard = within(row, product.rows.extent, attention.height)
        guard += within(column, product.columns.extent, width)
        return under(guard, product.stored(named, value))


def _power(value: Expr, base: Expr) -> Expr:
    return Unary(UnaryOp.EXP_NONPOSITIVE, Binary(BinaryOp.SUB, value, base))
