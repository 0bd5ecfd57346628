"""The rule `tiles`: matrix products and convolutions, where each block of threads computes one tile
with the factors in workgroup memory and the sums in registers. With two stages, the factors of the
next iteration are copied during the current one, by the primitive `double_buffer`. A convolution is
a product whose input is gathered as it is copied.

Each product becomes a launch by the primitive `tile_product`, together with the nest that reads its
sums element by element. All other nests become launches as in the rules `rows` and `points`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from farrier.ir.expr import Reduce
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, ScheduleError
from farrier.schedule.nest import NestView, allocated
from farrier.schedule.product import Product
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.operations import reads_of
from farrier.targets.gpu import points, rows
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.product_cost import Shape, copied_each, cost, workgroup_bytes

RULE = RuleId("tiles", version=2)
_VALUES = {
    "threads_y": (1, 2, 4, 8, 16),
    "threads_x": (4, 8, 16, 32, 64),
    "each_y": (1, 2, 4, 8),
    "each_x": (1, 2, 4, 8),
    "depth": (4, 8, 16, 32),
    "stages": (1, 2),
}
_LEAST_THREADS = 32  # A block of fewer leaves lanes of its groups idle, on most devices.
_MOST_EACH = 64  # Sums of a thread: more leave too few registers for other blocks.
_SHORT_EPILOGUE = 16  # Operations of a result that are written out for each sum of a thread.
_MOST_COPIED = 16  # Elements that a thread keeps for the next turn: more leave too few registers.
_MOST_STATEMENTS = 512  # Operations in all that are written out so.


@dataclasses.dataclass(frozen=True)
class Tiled:
    """A product of a kernel, by the names of the buffers of its sums (`total`) and of their
    reader."""

    total: str
    reader: str
    shape: Shape


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of a kernel with tiled products; None if it has none. The knobs are
    the tile shape of the largest product; the other products use the tiles with the smallest
    estimated time."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    products = products_of(program)
    if not products:
        return None
    return Space.of(RULE, _Kernel(program, products, limits, device))


def products_of(program: TensorProgram) -> list[Tiled]:
    """Return the products of a program that the primitive `tile_product` can schedule."""
    return [
        Tiled(total, reader, Shape.of(product))
        for total, reader, product in named_products(program, _is_worth_it)
    ]


def named_products(
    program: TensorProgram, is_taken: Callable[[Product], bool]
) -> list[tuple[str, str, Product]]:
    """Return the sums of products in a program for which `is_taken` holds, as tuples: the name of
    the buffer of the sums, the name of the buffer that their reader writes, and the product."""
    function = to_loops(program)
    outputs = {buffer.name for buffer in program.outputs}
    products = []
    taken: set[str] = set()
    for stage in program.stages:
        if not isinstance(stage.body, Reduce) or stage.buffer.name in taken:
            continue
        total = stage.buffer.name
        readers = [other for other in program.stages if reads_of(total, [other])]
        names = [r.buffer.name for r in readers if not isinstance(r.body, Reduce)]
        tried = [*(names if len(readers) == 1 and total not in outputs else ()), total]
        for reader in tried:
            try:
                product = Product.of(NestView(function, "tiles"), total, reader)
            except ScheduleError:
                continue
            if is_taken(product):
                products.append((total, reader, product))
                taken |= {total, reader}
            break
    return products


def _is_worth_it(product: Product) -> bool:
    """Check whether tiles are useful for a product: it must have several rows and several columns,
    so that each factor is used repeatedly."""
    return bool(product.columns.axes and product.rows.axes)


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, products: list[Tiled], limits: Limits, device: Device
    ) -> None:
        self._program = program
        self._limits, self._device = limits, device
        self._main = max(products, key=lambda product: product.shape.work)
        self._others = [product for product in products if product is not self._main]

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return _allowed(self._main.shape, columns, self._limits)

    def estimate(self, columns: Columns) -> Estimate:
        return cost(self._main.shape, self._device, columns)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        tile(schedule, self._main, decisions)
        for other in self._others:
            tile(schedule, other, best(other.shape, self._limits, self._device))
        done = {name for each in (self._main, *self._others) for name in (each.total, each.reader)}
        done |= rows.share_all(schedule, self._limits, self._device)
        return points.with_the_rest(schedule, self._program, frozenset(done), self._limits.packed)


def best(shape: Shape, limits: Limits, device: Device) -> Decisions:
    """Return the tile with the smallest estimated time for a product."""
    grid = np.array(list(itertools.product(*_VALUES.values())), np.int64).T
    columns = dict(zip(_VALUES, grid, strict=True))
    seconds = np.where(
        _allowed(shape, columns, limits), cost(shape, device, columns).seconds, np.inf
    )
    first = int(np.argmin(seconds))
    return {name: int(column[first]) for name, column in columns.items()}


def _allowed(shape: Shape, columns: Columns, limits: Limits) -> npt.NDArray[np.bool_]:
    threads = columns["threads_y"] * columns["threads_x"]
    each = columns["each_y"] * columns["each_x"]
    allowed: npt.NDArray[np.bool_] = (threads <= limits.threads) & (each <= _MOST_EACH)
    most = 1
    for axis, extent in (("y", shape.rows), ("x", shape.columns)):
        values = _VALUES[f"threads_{axis}"]
        filled = max(values[0], 1 << (extent - 1).bit_length())  # A tile of more is mostly empty.
        allowed &= columns[f"threads_{axis}"] * columns[f"each_{axis}"] <= filled
        most *= max(value for value in values if value <= filled)
    allowed &= threads >= min(_LEAST_THREADS, most)
    if shape.epilogue > _SHORT_EPILOGUE:
        allowed &= each * shape.epilogue <= max(_MOST_STATEMENTS, shape.epilogue)
    turns = -(-shape.terms // columns["depth"])
    allowed &= (columns["stages"] == 1) | ((turns > 1) & (copied_each(columns) <= _MOST_COPIED))
    nbytes = workgroup_bytes(shape, columns, limits.element_bytes)
    return allowed & (nbytes <= limits.workgroup_bytes)


def tile(schedule: Schedule, product: Tiled, decisions: Decisions) -> None:
    """Schedule a product as one launch, tile by tile."""
    threads = decisions["threads_y"], decisions["threads_x"]
    each = decisions["each_y"], decisions["each_x"]
    schedule.tile_product(product.total, product.reader, threads, each, decisions["depth"])
    if decisions["stages"] > 1:
        staged = {buffer.name for buffer in allocated(schedule.function.body)}
        for factor in ("rows", "columns"):
            if (name := f"{product.total}_{factor}") in staged:
                schedule.double_buffer(name)
