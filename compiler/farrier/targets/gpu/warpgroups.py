"""The rule `warpgroups`: matrix products and convolutions that groups of 128 threads compute with
both factors in workgroup memory, on devices that declare such products (`wgmma`).

Each such product becomes a launch by the primitive `warpgroup_product`, together with the nest that
reads its sums. Other products are scheduled as in the rules `fragments` and `tiles`, all other
nests as in `rows` and `points`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.fragments import FragmentProduct
from farrier.intrinsics.warpgroups import ROW_BYTES, WarpgroupProduct
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.declared_product import factors_of
from farrier.schedule.factor_source import Source
from farrier.schedule.nest import NestView
from farrier.schedule.product import Product
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.targets.gpu import fragments, points, rows, tiles
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.warpgroup_cost import Shape, allowed, cost

RULE = RuleId("warpgroups", version=2)
_VALUES = {
    "groups_y": (1, 2),
    "groups_x": (1, 2),
    "each_y": (1, 2),
    "each_x": (1, 2),
    "steps": (1, 2),
    "stages": (1, 2, 3, 4, 5),
}
# The fewest rows and columns; with fewer, most of a fragment would be unused.
_LEAST_ROWS, _LEAST_COLUMNS = 32, 16


@dataclasses.dataclass(frozen=True)
class OfWarpgroups:
    """A product of a kernel, by the names of its buffers."""

    total: str
    reader: str
    shape: Shape


def space(
    program: TensorProgram | Function,
    limits: Limits,
    device: Device,
    declared: Sequence[WarpgroupProduct],
    of_subgroups: Sequence[FragmentProduct] = (),
) -> Space | None:
    """Return the schedule space of a kernel; None if the device declares no product of warpgroups
    for its products. The knobs are those of the largest product."""
    if isinstance(program, Function) or not declared:
        return None
    program = inline(program)
    products = products_of(program, declared)
    if not products:
        return None
    return Space.of(RULE, _Kernel(program, products, limits, device, of_subgroups))


def products_of(program: TensorProgram, declared: Sequence[WarpgroupProduct]) -> list[OfWarpgroups]:
    """Return the products of a program that warpgroups can compute."""
    nest = NestView(to_loops(program), "warpgroups")
    products = []
    for tiled in tiles.products_of(program):
        product = Product.of(nest, tiled.total, tiled.reader)
        types = (factors_of(product), product.total.dtype)
        matching = [each for each in declared if types == (each.factors, each.total)]
        if not matching or tiled.shape.rows < _LEAST_ROWS or tiled.shape.columns < _LEAST_COLUMNS:
            continue
        along = [Source.of(product, side).along_terms for side in (0, 1)]
        reads_across = matching[0].reads_across
        across = reads_across and not along[0], reads_across and not along[1]
        shape = Shape(tiled.shape, matching, across)
        products.append(OfWarpgroups(tiled.total, tiled.reader, shape))
    return products


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self,
        program: TensorProgram,
        products: list[OfWarpgroups],
        limits: Limits,
        device: Device,
        of_subgroups: Sequence[FragmentProduct],
    ) -> None:
        self._program = program
        self._limits, self._device = limits, device
        self._main = max(products, key=lambda product: product.shape.product.work)
        self._others = [product for product in products if product is not self._main]
        names = {product.total for product in products}
        self._fragments = [
            product
            for product in (fragments.products_of(program, of_subgroups) if of_subgroups else ())
            if product.total not in names
        ]
        names |= {product.total for product in self._fragments}
        self._tiled = [each for each in tiles.products_of(program) if each.total not in names]

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _values_of(self._main.shape).items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return allowed(self._main.shape, columns, self._limits, self._device)

    def estimate(self, columns: Columns) -> Estimate:
        return cost(self._main.shape, self._device, columns)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        limits, device = self._limits, self._device
        multiply(schedule, self._main, decisions)
        for other in self._others:
            multiply(schedule, other, best(other.shape, limits, device))
        for product in self._fragments:
            fragments.multiply(schedule, product, fragments.best(product.shape, limits, device))
        for tiled in self._tiled:
            tiles.tile(schedule, tiled, tiles.best(tiled.shape, limits, device))
        products: list[OfWarpgroups | fragments.OfFragments | tiles.Tiled]
        products = [self._main, *self._others, *self._fragments, *self._tiled]
        done = {name for each in products for name in (each.total, each.reader)}
        done |= rows.share_all(schedule, limits, device)
        return points.with_the_rest(schedule, self._program, frozenset(done), limits.packed)


def _values_of(shape: Shape) -> dict[str, tuple[int, ...]]:
    return {"columns": tuple(each.columns for each in shape.declared), **_VALUES}


def best(shape: Shape, limits: Limits, device: Device) -> Decisions:
    """Return the decisions with the smallest estimated time for a product."""
    values = _values_of(shape)
    grid = np.array(list(itertools.product(*values.values())), np.int64).T
    columns = dict(zip(values, grid, strict=True))
    seconds = cost(shape, device, columns).seconds
    first = int(np.argmin(np.where(allowed(shape, columns, limits, device), seconds, np.inf)))
    return {name: int(column[first]) for name, column in columns.items()}


def multiply(schedule: Schedule, product: OfWarpgroups, decisions: Decisions) -> None:
    """Schedule a product as one launch of warpgroups."""
    shape = product.shape
    groups = decisions["groups_y"], decisions["groups_x"]
    each = decisions["each_y"], decisions["each_x"]
    depth = decisions["steps"] * ROW_BYTES // shape.nbytes
    name, stages = shape.of_columns(decisions["columns"]).name, decisions["stages"]
    sizes = groups, each, depth, stages
    schedule.warpgroup_product(product.total, product.reader, name, *sizes, fetches=True)
