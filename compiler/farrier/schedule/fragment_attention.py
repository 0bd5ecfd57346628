"""Attention as subgroups compute it with matrix instructions: its parts and their sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier.ir import expr as e
from farrier.ir.dim import Extent, ceildiv, number
from farrier.ir.expr import Expr, Var
from farrier.ir.loop import Stmt
from farrier.ir.substitute import Indices, Substitution
from farrier.schedule.attend import check_rows
from farrier.schedule.attention_softmax import Softmax
from farrier.schedule.declared_product import Declared
from farrier.schedule.fragment_places import Places
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product, variables_of
from farrier.schedule.share_rows import Rows
from farrier.schedule.tiling_parts import ZERO, product_of


@dataclasses.dataclass(frozen=True)
class FragmentAttention:
    """Two products and the softmax between them, which blocks of `groups` subgroups compute, in
    slices of `keys` columns of the scores. The first product's results are the buffer `scores`.
    A fragment of sums has the element `at` of a thread at `places.point(lane, at)`."""

    products: tuple[Product, Product]
    scores: str
    rows: Rows
    softmax: Softmax
    declared: Declared
    places: Places
    groups: int
    keys: int
    steps: int  # Fragments along the terms of the first product.
    parts: tuple[int, int]  # Fragments of scores in a slice, and of results, along the columns.

    @classmethod
    def of(
        cls,
        nest: NestView,
        first: tuple[str, str],
        between: Sequence[str],
        last: tuple[str, str],
        intrinsic: str,
        subgroups: int,
        keys: int,
    ) -> FragmentAttention:
        scores, values = products = Product.of(nest, *first), Product.of(nest, *last)
        rows = Rows.of(nest, between, (first[1],))
        check_rows(nest, products, rows)
        softmax = Softmax.of(nest, rows, values, scores.columns.extent)
        declared = Declared.of(nest, intrinsic)
        if why := declared.why_not(scores) or declared.why_not(values):
            nest.fail(why)
        places = Places.of(nest, declared)
        depth = product_of(extent for _, extent in scores.sums)
        width = values.columns.extent
        if not isinstance(depth, int) or not isinstance(width, int):
            nest.fail(f"{depth} terms or {width} columns are not a number")
        if keys % declared.columns or keys % declared.depth or min(subgroups, keys) < 1:
            nest.fail(f"a slice of {keys} columns for {subgroups} subgroups")
        steps = number(ceildiv(depth, declared.depth))
        parts = keys // declared.columns, number(ceildiv(width, declared.columns))
        return cls(
            products, first[1], rows, softmax, declared, places, subgroups, keys, steps, parts
        )

    @property
    def name(self) -> str:
        """The name that the buffers and loops of the launch begin with."""
        return self.products[0].total.name

    @property
    def nests(self) -> tuple[Stmt, ...]:
        """The loop nests that the launch replaces."""
        first, last = self.products
        return (*first.nests, *self.rows.nests, *last.nests)

    @property
    def count(self) -> Extent:
        """The number of keys: the columns of the scores."""
        return self.products[0].columns.extent

    @property
    def height(self) -> int:
        """The number of rows of a block."""
        return self.groups * self.declared.rows

    def row_number(self, row: Expr) -> Expr:
        """Return the global number of row `row` of a block."""
        return e.add(e.mul(Var(f"{self.name}_by"), self.height), row)

    def point(self, group: Expr, lane: Expr, at: Expr) -> tuple[Expr, Expr]:
        """Return the row and the column within the block's tile of element `at` of a thread."""
        row, column = self.places.point(lane, e.mod(at, self.places.each))
        part = e.mul(e.floordiv(at, self.places.each), self.declared.columns)
        return e.add(e.mul(group, self.declared.rows), row), e.add(part, column)

    def row_of(self, lane: Expr, at: Expr) -> Expr:
        """Return the number of the thread's row that has its element `at`."""
        row, _ = self.places.point(lane, e.mod(at, self.places.each))
        return e.floordiv(row, self.places.step)

    def score(self, row: Expr, key: Expr, total: Expr) -> Expr:
        """Return the score at a row and a key, whose sum of products is `total`."""
        product = self.products[0]
        store, name = product.store, product.total.name
        batch = [Var(f"{axis}_b") for axis, extent in product.batch if extent != 1]

        def read(indices: Indices) -> Expr:
            if self.scores == name:
                return total
            own: dict[str, Expr] = dict.fromkeys(variables_of(store), ZERO)
            for index, value in zip(store.indices, indices, strict=True):
                own |= {index.name: value} if isinstance(index, Var) else {}
            return Substitution(own, reads={name: lambda _: total}).expr(store.value)

        return self.softmax.score_at((*batch, row), key, {self.scores: read})
