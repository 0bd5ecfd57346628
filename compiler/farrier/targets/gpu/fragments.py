"""The rule `fragments`: matrix products that subgroups compute on fragments, on devices that
declare fragment products (tensor cores) for the dtypes of the factors. The factors of f32 products
are rounded only where the program itself rounds them.

Each such product becomes a launch by the primitive `subgroup_product`, together with the nest that
reads its sums. Other products are scheduled as in the rule `tiles`, all other nests as in `rows`
and `points`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.fragments import FragmentProduct
from farrier.ir.dim import number
from farrier.ir.loop import Alloc, Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.declared_product import factors_of
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.targets.gpu import points, product_cost, rows, tiles
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.fragment_cost import CHUNK, MATRIX, Shape, allowed, cost

RULE = RuleId("fragments", version=5)
_VALUES = {
    "groups_y": (1, 2, 4),
    "groups_x": (1, 2, 4),
    "each_y": (1, 2, 4),
    "each_x": (1, 2, 4),
    "steps": (1, 2, 4),
    "stages": (1, 2, 3, 4),
}
_LEAST = 8  # The fewest rows and columns; with fewer, most of a fragment would be unused.


@dataclasses.dataclass(frozen=True)
class OfFragments:
    """A product of a kernel, by the names of its buffers, and the declaration of the fragment
    product that computes it."""

    total: str
    reader: str
    declared: FragmentProduct
    shape: Shape


def space(
    program: TensorProgram | Function,
    limits: Limits,
    device: Device,
    declared: Sequence[FragmentProduct],
) -> Space | None:
    """Return the schedule space of a kernel with fragments; None if the device declares no fragment
    product for the dtypes of its products. The knobs are those of the largest product."""
    if isinstance(program, Function) or not declared:
        return None
    program = inline(program)
    products = products_of(program, declared)
    if not products:
        return None
    return Space.of(RULE, _Kernel(program, products, limits, device))


def products_of(program: TensorProgram, declared: Sequence[FragmentProduct]) -> list[OfFragments]:
    """Return the products of a program that subgroups can compute on fragments."""
    nest = NestView(to_loops(program), "fragments")
    products = []
    for tiled in tiles.products_of(program):
        product = Product.of(nest, tiled.total, tiled.reader)
        types = (factors_of(product), product.total.dtype)
        for each in declared:
            if types == (each.factors, each.total) and _fills(tiled.shape):
                shape = Shape(tiled.shape, each)
                products.append(OfFragments(tiled.total, tiled.reader, each, shape))
                break
    return products


def _fills(shape: product_cost.Shape) -> bool:
    """Check whether a product fills at least half of a fragment."""
    return min(shape.rows, shape.columns) >= _LEAST


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self,
        program: TensorProgram,
        products: list[OfFragments],
        limits: Limits,
        device: Device,
    ) -> None:
        self._program = program
        self._limits, self._device = limits, device
        self._main = max(products, key=lambda product: product.shape.product.work)
        self._others = [product for product in products if product is not self._main]
        names = {product.total for product in products}
        self._tiled = [each for each in tiles.products_of(program) if each.total not in names]

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return allowed(self._main.shape, columns, self._limits)

    def estimate(self, columns: Columns) -> Estimate:
        return cost(self._main.shape, self._device, columns)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        multiply(schedule, self._main, decisions)
        for other in self._others:
            multiply(schedule, other, best(other.shape, self._limits, self._device))
        for tiled in self._tiled:
            tiles.tile(schedule, tiled, tiles.best(tiled.shape, self._limits, self._device))
        products: list[OfFragments | tiles.Tiled] = [self._main, *self._others, *self._tiled]
        done = {name for each in products for name in (each.total, each.reader)}
        done |= rows.share_all(schedule, self._limits, self._device)
        return points.with_the_rest(schedule, self._program, frozenset(done), self._limits.packed)


def best(shape: Shape, limits: Limits, device: Device) -> Decisions:
    """Return the decisions with the smallest estimated time for a product."""
    grid = np.array(list(itertools.product(*_VALUES.values())), np.int64).T
    columns = dict(zip(_VALUES, grid, strict=True))
    seconds = cost(shape, device, columns).seconds
    first = int(np.argmin(np.where(allowed(shape, columns, limits), seconds, np.inf)))
    return {name: int(column[first]) for name, column in columns.items()}


def multiply(schedule: Schedule, product: OfFragments, decisions: Decisions) -> None:
    """Schedule a product as one launch on fragments."""
    groups = decisions["groups_y"], decisions["groups_x"]
    each = decisions["each_y"], decisions["each_x"]
    depth = decisions["steps"] * product.declared.depth
    name, stages = product.declared.name, decisions["stages"]
    # Without asynchronous copies for so deep a pipeline, threads load the factors of the next
    # iteration.
    is_kept = stages > product.declared.stages
    copied = 1 if is_kept else stages
    schedule.subgroup_product(product.total, product.reader, name, groups, each, depth, copied)
    factors = [f"{product.total}_{side}" for side in ("rows", "columns")]
    for factor in factors:
        keep_apart(schedule, factor)
    for factor in factors if is_kept else ():
        schedule.double_buffer(factor)


def keep_apart(schedule: Schedule, factor: str) -> None:
    """Swizzle a factor in workgroup memory. A subgroup reads eight rows at once; after the swizzle,
    these rows are in different memory banks, so the reads do not conflict."""
    alloc = NestView(schedule.function, "fragments").path_to_alloc(factor)[-1]
    assert isinstance(alloc, Alloc)
    chunk = CHUNK // alloc.buffer.dtype.nbytes
    chunks = number(alloc.buffer.shape[-1]) // chunk
    count = math.gcd(MATRIX, chunks)
    if count > 1:  # Rows of one chunk lie side by side.
        schedule.swizzle(factor, chunk, MATRIX // count, count)
