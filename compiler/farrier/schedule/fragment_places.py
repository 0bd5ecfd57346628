"""The places of a fragment whose elements a thread has in registers."""

from __future__ import annotations

import dataclasses
import itertools

from farrier.intrinsics import lookup
from farrier.intrinsics.exchanges import MASKS
from farrier.intrinsics.fragments import own_name
from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.dim import number
from farrier.ir.expr import Const, Expr, Load
from farrier.ir.substitute import Substitution
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.schedule.declared_product import Declared
from farrier.schedule.nest import NestView
from farrier.schedule.tiling_parts import only_store


@dataclasses.dataclass(frozen=True)
class Places:
    """The elements of a fragment of sums that a thread has: `each` in number, in the rows `rows`
    of the first thread, which are `step` rows apart. Threads whose numbers differ in a bit of
    `masks` have the same rows."""

    row: Expr
    column: Expr
    each: int
    rows: tuple[int, ...]
    step: int
    masks: tuple[int, ...]

    @classmethod
    def of(cls, nest: NestView, declared: Declared) -> Places:
        try:
            own = lookup(own_name(declared.name)).semantics
        except KeyError:
            nest.fail(f"the threads of {declared.name} do not have its sums in registers")
        load = only_store(own.body).value
        assert isinstance(load, Load)
        row, column = load.indices
        each = number(own.params[0].shape[1])
        if each & (each - 1):
            nest.fail(f"a thread of {declared.name} has {each} sums, which is not a power of two")

        def row_of(lane: int, at: int) -> int:
            named = {"lane": e.index(lane), "i": e.index(at)}
            value = Simplifier({}).simplify(Substitution(named).expr(row))
            assert isinstance(value, Const)
            return int(value.value)

        lanes, elements = range(SUBGROUP_SIZE), range(each)
        rows = tuple(sorted({row_of(0, at) for at in elements}))
        step = declared.rows // len(rows)
        masks = tuple(
            mask
            for mask in MASKS
            if all(row_of(lane, 0) == row_of(lane ^ mask, 0) for lane in lanes)
        )
        numbers = [row_of(0, at) for at in elements]
        for lane, at in itertools.product(lanes, elements):
            if row_of(lane, at) // step != rows.index(numbers[at]):
                nest.fail(f"the rows of a thread of {declared.name} are not {step} apart")
        return cls(row, column, each, rows, step, masks)

    def point(self, lane: Expr, at: Expr) -> tuple[Expr, Expr]:
        """Return the row and the column of an element of a thread."""
        change = Substitution({"lane": lane, "i": at})
        return change.expr(self.row), change.expr(self.column)
