"""The rule `direct`: products that have few terms or little reuse of their factors, where each
thread computes a few neighbouring results in registers. It covers depthwise convolutions,
convolutions of few channels, and sums of few terms.

Each product's nest becomes a launch by the primitive `sum_neighbours`. All other nests become
launches as in the rules `rows` and `points`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import Extent, typical
from farrier.ir.expr import Expr
from farrier.ir.loop import Function
from farrier.ir.substitute import loads
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.product import Factor, Product
from farrier.schedule.tiling_parts import product_of
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.operations import operations_of
from farrier.space.space import Floats
from farrier.targets.gpu import points, rows
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.occupancy import occupancy
from farrier.targets.gpu.product_cost import INDEX_OPERATIONS
from farrier.targets.gpu.tiles import named_products

RULE = RuleId("direct", version=1)
_VALUES = {
    "direct_threads": (64, 32, 128, 256),
    "direct_rows": (1, 2, 4, 8),
    "direct_columns": (1, 2, 4, 8),
    "unrolled_sums": (0, 1, 2, 3),
}
_FEW = 8  # Rows or columns, or the channels of an image: tiles of fewer are mostly empty.
_FEW_TERMS = 32  # A tile is copied for so few additions that reading twice costs less.
_MOST_TERMS = 1024  # A thread alone takes long for a sum of more.
_MOST_STATEMENTS = 512  # Additions and loads that are written out: compilers take long for more.
_MOST_EACH = 32  # Sums of a thread.
_LOAD = 4  # Operations that a unit begins in the time of a load from its cache.
_ALONE = 0.1  # The share of the shorter one of computing and reading that the other does not hide.


@dataclasses.dataclass(frozen=True)
class Direct:
    """A product in a kernel. `total` is the name of the buffer of its sums, and `reader` that of
    the buffer that is computed from them. The other fields are its sizes at typical extents: `last`
    has the extents of the last row axis and the last column axis, `outer` the number of points
    along all other axes, and `sums` the extents of the summed axes."""

    total: str
    reader: str
    outer: int
    last: tuple[int, int]
    sums: tuple[int, ...]
    digits: int
    loads: tuple[int, int]  # Operations of a load of each factor.
    epilogue: int
    nbytes: float  # All operands and the result.

    @classmethod
    def of(cls, total: str, reader: str, product: Product) -> Direct:
        sides = product.rows, product.columns
        axes = [*product.batch, *(axis for side in sides for axis in side.axes)]
        last = tuple(side.axes[-1][1] if side.axes else 1 for side in sides)
        outer = [product_of(n for _, n in side.axes[:-1]) for side in sides]
        batch = product_of(n for _, n in product.batch)
        return cls(
            total,
            reader,
            _size(batch) * math.prod(map(_size, outer)),
            (_size(last[0]), _size(last[1])),
            tuple(_size(extent) for _, extent in product.sums),
            sum(extent != 1 for _, extent in axes),
            (_operations(sides[0].value), _operations(sides[1].value)),
            operations_of(product.store.value),
            _nbytes(product),
        )

    @property
    def work(self) -> float:
        return float(self.outer) * math.prod(self.last) * math.prod(self.sums)


def _size(extent: Extent) -> int:
    return max(1, typical(extent))


def _operations(value: Expr) -> int:
    return _LOAD + operations_of(value)


def _nbytes(product: Product) -> float:
    """Return the bytes of all buffers that a product reads or writes."""
    sides: tuple[Factor, ...] = (product.rows, product.columns)
    buffers = {load.buffer for side in sides for load in loads(side.value)}
    buffers.add(product.store.buffer)
    return float(sum(_size(buffer.type.size) * buffer.dtype.nbytes for buffer in buffers))


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of a kernel; None if no product of the kernel is suitable for the
    rule."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    products = [Direct.of(*each) for each in named_products(program, _is_suitable)]
    return Space.of(RULE, _Kernel(program, products, limits, device)) if products else None


def _is_suitable(product: Product) -> bool:
    """Check whether this rule applies to a product: it has few terms, and tiles of it would be
    mostly empty or have too little reuse of the factors."""
    terms = _size(product_of(extent for _, extent in product.sums))
    sizes = [_size(side.extent) for side in (product.rows, product.columns)]
    return terms <= _MOST_TERMS and (min(sizes) <= _FEW or terms <= _FEW_TERMS)


def cost(product: Direct, device: Device, columns: Columns) -> Estimate:
    """Return the estimated seconds of a product for each candidate."""
    threads = columns["direct_threads"].astype(np.float64)
    each = [columns[name].astype(np.float64) for name in ("direct_rows", "direct_columns")]
    count = np.full(len(threads), float(product.outer))
    for size, own in zip(product.last, each, strict=True):
        count *= np.ceil(size / own)
    unrolled = _unrolled_terms(product, columns)
    terms = float(math.prod(product.sums))
    # Of neighbours along an unrolled axis of the sum, all but the first share their loads.
    shared = np.where(unrolled > 1, 2.0, 1.0)
    moved = product.loads[0] * each[0] + product.loads[1] * each[1] / shared
    loop = 3.0 / unrolled
    operations = terms * (each[0] * each[1] + moved + loop)
    operations += INDEX_OPERATIONS * product.digits
    operations += each[0] * each[1] * (product.epilogue + 4)
    blocks = np.ceil(count / threads)
    groups = np.ceil(threads / device.group)
    rounds, at_once = occupancy(device, blocks, groups * device.group)
    issue = rounds * groups * device.group / device.lanes * operations
    waits = rounds / at_once * terms / unrolled * device.memory_latency / _hidden(each, unrolled)
    compute = np.maximum(issue, waits) / device.clock
    memory = np.full(len(threads), product.nbytes / device.bandwidth)
    overhead = np.full(len(threads), device.launch_s)
    # They overlap, but not all of both.
    seconds = np.maximum(compute, memory) + _ALONE * np.minimum(compute, memory) + overhead
    terms_of = {"compute": compute, "memory": memory, "overhead": overhead}
    return Estimate(seconds, terms_of | {"tiles": blocks})


def _hidden(each: list[Floats], unrolled: Floats) -> Floats:
    """Return the number of loads of a thread that are in flight at the same time. They are the
    loads of one unrolled iteration, up to a limit."""
    hidden: Floats = np.minimum(16.0, (each[0] + each[1]) * np.maximum(1.0, unrolled / 2))
    return hidden


def _unrolled_terms(product: Direct, columns: Columns) -> Floats:
    """Return the number of terms that are unrolled, for each candidate."""
    ends = np.array([math.prod(product.sums[len(product.sums) - n :]) for n in _counts(product)])
    chosen = np.minimum(columns["unrolled_sums"], len(product.sums))
    return ends[chosen].astype(np.float64)


def _counts(product: Direct) -> range:
    return range(len(product.sums) + 1)


def allowed(product: Direct, limits: Limits, columns: Columns) -> npt.NDArray[np.bool_]:
    """Check for each candidate that it does not exceed the limits of the device, that a thread does
    not compute more neighbours than the product has, and that its unrolled code is short."""
    each = columns["direct_rows"] * columns["direct_columns"]
    within: npt.NDArray[np.bool_] = columns["direct_threads"] <= limits.threads
    within &= (each <= _MOST_EACH) & (columns["unrolled_sums"] <= len(product.sums))
    for size, name in zip(product.last, ("direct_rows", "direct_columns"), strict=True):
        within &= columns[name] < 2 * size
    terms = _unrolled_terms(product, columns)
    loaded = columns["direct_rows"] + columns["direct_columns"]
    short = (terms * (each + loaded) + each * product.epilogue) <= _MOST_STATEMENTS
    plain = (each == 1) & (columns["unrolled_sums"] == 0)
    within &= short | plain
    return within


def apply(schedule: Schedule, product: Direct, decisions: Decisions) -> None:
    """Schedule a product as one launch."""
    schedule.sum_neighbours(
        product.total,
        product.reader,
        decisions["direct_threads"],
        (decisions["direct_rows"], decisions["direct_columns"]),
        decisions["unrolled_sums"],
    )


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, products: list[Direct], limits: Limits, device: Device
    ) -> None:
        self._program = program
        self._limits, self._device = limits, device
        self._main = max(products, key=lambda product: product.work)
        self._others = [product for product in products if product is not self._main]

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return allowed(self._main, self._limits, columns)

    def estimate(self, columns: Columns) -> Estimate:
        return cost(self._main, self._device, columns)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        apply(schedule, self._main, decisions)
        for other in self._others:
            apply(schedule, other, self._best(other))
        done = {name for each in (self._main, *self._others) for name in (each.total, each.reader)}
        done |= rows.share_all(schedule, self._limits, self._device)
        return points.with_the_rest(schedule, self._program, frozenset(done), self._limits.packed)

    def _best(self, product: Direct) -> Decisions:
        """Return the decisions with the smallest estimated time for a product."""
        grid = np.array(list(itertools.product(*_VALUES.values())), np.int64).T
        columns = dict(zip(_VALUES, grid, strict=True))
        seconds = cost(product, self._device, columns).seconds
        first = int(np.argmin(np.where(allowed(product, self._limits, columns), seconds, np.inf)))
        return {name: int(column[first]) for name, column in columns.items()}
