"""The softmax between the two products of attention, as loop nests compute it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from farrier.ir.dim import Extent
from farrier.ir.expr import Binary, BinaryOp, Expr, Load, Unary, UnaryOp, Var
from farrier.ir.substitute import Indices, Substitution, loads, variables
from farrier.schedule.declared_product import as_held
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.schedule.share_rows import Part, Rows
from farrier.schedule.tiling_parts import ZERO

_KEY = Var("key")
_EXPONENTIALS = (UnaryOp.EXP, UnaryOp.EXP_NONPOSITIVE)


@dataclasses.dataclass(frozen=True)
class Softmax:
    """The softmax between the products. Its results are exponentials times `share` (divided by it
    if `divides`), which is an expression of the buffer `sum`. `score` is what the exponentials are
    of, before the maximum is subtracted, at the element `_row(0), _row(1), …, _KEY`."""

    score: Expr
    sum: str
    share: Expr
    divides: bool

    @classmethod
    def of(cls, nest: NestView, rows: Rows, product: Product, extent: Extent) -> Softmax:
        """Return the softmax that the nests `rows` compute and `product` reads; fail if they
        compute something else."""
        if len(rows.parts) < 3:
            nest.fail("no softmax stands between the products")
        highest, power, total, *rest = rows.parts
        score, summed = _operand(highest, BinaryOp.MAX), _operand(total, BinaryOp.ADD)
        own = _element(power)
        if score is None or summed != own or power.first is not None:
            nest.fail(f"{own.buffer.name} is not summed after its maximum is subtracted")
        if _of_element(power, power.store.value) not in [
            Unary(op, Binary(BinaryOp.SUB, score, _element(highest))) for op in _EXPONENTIALS
        ]:
            nest.fail(f"{own.buffer.name} is not an exponential of {highest.store.buffer.name}")
        if not all(_length(part) == extent for part in (highest, power, total)):
            nest.fail(f"the rows of {own.buffer.name} are others")
        stored = {part.store.buffer.name: part for part in rest}
        weights = _of_rows(product, _resolved(as_held(as_held(product.rows.value)), stored))
        reader, name = product.total.name, total.store.buffer.name
        if not isinstance(weights, Binary) or weights.op not in (BinaryOp.MUL, BinaryOp.DIV):
            nest.fail(f"{reader} does not read exponentials over their sum")
        read = {load.buffer.name for load in loads(weights.right)}
        if weights.left != own or read != {name}:
            nest.fail(f"{reader} does not read {own.buffer.name} over {name}")
        return cls(score, name, weights.right, weights.op is BinaryOp.DIV)

    def score_at(
        self, row: Sequence[Expr], key: Expr, reads: Mapping[str, Callable[[Indices], Expr]]
    ) -> Expr:
        """Return the score at `row`, its position along each axis, and `key`; `reads` returns the
        values of elements, by the names of their buffers."""
        named = {_row(axis).name: at for axis, at in enumerate(row)}
        return Substitution({**named, _KEY.name: key}, reads=reads).expr(self.score)

    def normalized(self, value: Expr, total: Expr) -> Expr:
        """Return `value`, a sum weighted by exponentials, over the sum of these, `total`."""
        share = Substitution(reads={self.sum: lambda _: total}).expr(self.share)
        return Binary(BinaryOp.DIV if self.divides else BinaryOp.MUL, value, share)


def _row(axis: int) -> Var:
    return Var(f"row{axis}")


def _length(part: Part) -> Extent:
    return part.inner[0][1] if len(part.inner) == 1 else 0


def _of_element(part: Part, value: Expr) -> Expr:
    """Return an expression of the loops of a nest at the element `_row(0), _row(1), …, _KEY`."""
    named: dict[str, Expr] = dict.fromkeys(variables(value), ZERO)  # Loops of one iteration.
    named |= {name: _row(axis) for axis, name in enumerate(part.rows)}
    named |= {name: _KEY for name, _ in part.inner}
    return Substitution(named).expr(value)


def _element(part: Part) -> Load:
    """Return the load of what a nest stores."""
    load = _of_element(part, Load(part.store.buffer, part.store.indices))
    assert isinstance(load, Load)
    return load


def _of_rows(product: Product, value: Expr) -> Expr:
    """Return an expression of the loops of a product at `_row(0), _row(1), …, _KEY`, as
    `_of_element` does for a nest."""
    axes = (*product.batch, *product.rows.axes)
    rows = [name for name, extent in axes if extent != 1]
    named: dict[str, Expr] = dict.fromkeys(variables(value), ZERO)
    named |= {name: _row(axis) for axis, name in enumerate(rows)}
    named |= {name: _KEY for name, extent in product.sums if extent != 1}
    return Substitution(named).expr(value)


def _operand(part: Part, op: BinaryOp) -> Expr | None:
    """Return the expression that a reduction joins by `op`; None if the nest is another
    statement."""
    value = part.store.value
    if part.first is None or not isinstance(value, Binary) or value.op is not op:
        return None
    return _of_element(part, value.right)


def _resolved(value: Expr, parts: Mapping[str, Part]) -> Expr:
    """Return an expression in which the stored value of a nest replaces each load of its buffer.
    The nests are in `parts`, by the names of their buffers."""

    def read(part: Part) -> Callable[[Indices], Expr]:
        def stored(indices: Indices) -> Expr:
            named: dict[str, Expr] = dict.fromkeys(variables(part.store.value), ZERO)
            for own, index in zip(part.store.indices, indices, strict=True):
                named |= {own.name: index} if isinstance(own, Var) else {}
            return _resolved(Substitution(named).expr(part.store.value), parts)

        return stored

    return Substitution(reads={name: read(part) for name, part in parts.items()}).expr(value)
