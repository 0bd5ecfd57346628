"""The rule `few_rows`: products of few rows with weights that are packed in words, where several
threads share the terms of each sum.

A thread loads 16 bytes of codes at once, which are those of a run of terms for a group of columns,
and unpacks them in registers. Neighbouring threads load neighbouring words. The codes are read from
memory once for up to eight rows; a product of more rows is usually faster by the rule `tiles`,
which unpacks each slice of the weights once for many rows.

Each product becomes a launch by the primitive `share_sums`. All other nests become launches as in
the rules `rows` and `points`.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import Extent, typical
from farrier.ir.expr import Load
from farrier.ir.loop import Function
from farrier.ir.substitute import loads
from farrier.ir.tensor import TensorProgram
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.ir.types import DType
from farrier.lower.loops import to_loops
from farrier.ops.packed import RUN, WORDS
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.product import Product
from farrier.schedule.tiling_parts import product_of
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.operations import operations_of
from farrier.targets.gpu import points, rows
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.occupancy import occupancy
from farrier.targets.gpu.tiles import named_products

RULE = RuleId("few_rows", version=1)
_VALUES = {
    "sum_threads": (32, 64, 128, 256, 8, 16),
    "sum_groups": (1, 2, 4, 8, 16, 32),
    "sum_rows": (1, 2, 4, 8),
    "sum_turns": (1, 2, 4),
}
_LEAST_THREADS = 32
_UNPACK = 4  # Operations that turn a code in a word into a float.
_TURN = 16  # Operations of a run besides its multiplications: addresses, loads, and scales.
_MOST_STATEMENTS = 512  # Multiplications that are written out: compilers take long for more.


@dataclasses.dataclass(frozen=True)
class FewRows:
    """A product of a kernel, by the names of the buffer of its sums (`total`) and of their reader,
    with the sizes for its cost at typical extents: `columns` are all columns of the result, which
    come in groups of `group`, and `nbytes` the bytes of the packed weights."""

    total: str
    reader: str
    rows: int
    columns: int
    group: int
    runs: int
    nbytes: int
    epilogue: int

    @classmethod
    def of(cls, total: str, reader: str, product: Product) -> FewRows:
        kinds = {load.buffer for load in loads(product.columns.value)}
        others = product_of(extent for _, extent in product.batch)
        terms = product_of(extent for _, extent in product.sums)
        return cls(
            total,
            reader,
            _size(others) * _size(product.rows.extent),
            _size(product.columns.extent),
            _group(product),
            _size(terms) // RUN,
            sum(_size(kind.nbytes) for kind in kinds),
            operations_of(product.store.value),
        )


def _size(extent: Extent) -> int:
    return max(1, typical(extent))


def _group(product: Product) -> int:
    """Return the number of columns whose codes are loaded at once; 0 if the columns of a product
    are not packed in words."""
    shapes = {
        load.buffer.dtype is DType.U32: load.buffer.shape
        for load in loads(product.columns.value)
        if _is_of_groups(load)
    }
    words, parameters = shapes.get(True), shapes.get(False)
    if words is None or parameters is None or words[2] != WORDS:
        return 0
    return int(parameters[2]) if isinstance(parameters[2], int) else 0


def _is_of_groups(load: Load) -> bool:
    return len(load.buffer.shape) == 3


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of a kernel; None if it has no product with packed weights."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    products = [FewRows.of(*each) for each in named_products(program, lambda p: _group(p) > 0)]
    return Space.of(RULE, _Kernel(program, products, limits, device)) if products else None


def cost(product: FewRows, device: Device, columns: Columns) -> Estimate:
    """Return the estimated seconds of a product for each candidate."""
    threads, groups, each, turns = (columns[name].astype(np.float64) for name in _VALUES)
    tiles = np.ceil(product.rows / each)
    blocks = np.ceil(tiles * np.ceil(product.columns / product.group) / groups)
    runs = np.ceil(product.runs / (threads * turns)) * turns
    codes = product.group * RUN
    operations = runs * (codes * (_UNPACK + each) + _TURN + each * (RUN + product.group))
    # An exchange and a sum for each bit of a thread's number, and then the parts of all subgroups.
    sums = each * product.group
    operations += sums * 2 * np.log2(np.minimum(threads, SUBGROUP_SIZE))
    operations += np.ceil(sums / threads) * (threads / SUBGROUP_SIZE + product.epilogue + 8)
    subgroups = np.ceil(threads * groups / device.group)
    rounds, at_once = occupancy(device, blocks, subgroups * device.group)
    issue = rounds * subgroups * device.group / device.lanes * operations
    waits = rounds / at_once * (runs / turns * device.memory_latency + 2 * device.barrier)
    compute = np.maximum(issue, waits) / device.clock
    # Each tile of rows reads all weights, all but the first one from the cache; each group of
    # columns of a block reads the rows.
    through_cache = tiles * product.nbytes / device.cache_bandwidth
    through_cache += blocks * each * product.runs * RUN * 4 / device.cache_bandwidth
    memory = np.full(len(threads), product.nbytes / device.bandwidth)
    overhead = np.full(len(threads), device.launch_s)
    seconds = np.maximum.reduce([compute, through_cache, memory]) + overhead
    terms = {"compute": compute, "l2": through_cache, "memory": memory, "overhead": overhead}
    return Estimate(seconds, terms | {"tiles": blocks})


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, products: list[FewRows], limits: Limits, device: Device
    ) -> None:
        self._program = program
        self._limits, self._device = limits, device
        self._main = max(products, key=lambda product: product.nbytes)
        self._others = [product for product in products if product is not self._main]

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return _allowed(self._main, columns, self._limits)

    def estimate(self, columns: Columns) -> Estimate:
        return cost(self._main, self._device, columns)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        self._share(schedule, self._main, decisions)
        for other in self._others:
            self._share(schedule, other, _best(other, self._limits, self._device))
        done = {name for each in (self._main, *self._others) for name in (each.total, each.reader)}
        done |= rows.share_all(schedule, self._limits, self._device)
        return points.with_the_rest(schedule, self._program, frozenset(done), self._limits.packed)

    def _share(self, schedule: Schedule, product: FewRows, decisions: Decisions) -> None:
        threads, groups, each, turns = (decisions[name] for name in _VALUES)
        tile = each, product.group
        lanes = self._limits.lanes
        schedule.share_sums(product.total, product.reader, threads, groups, tile, RUN, turns, lanes)


def _best(product: FewRows, limits: Limits, device: Device) -> Decisions:
    """Return the decisions with the smallest estimated time for a product."""
    grid = np.array(list(itertools.product(*_VALUES.values())), np.int64).T
    columns = dict(zip(_VALUES, grid, strict=True))
    seconds = cost(product, device, columns).seconds
    first = int(np.argmin(np.where(_allowed(product, columns, limits), seconds, np.inf)))
    return {name: int(column[first]) for name, column in columns.items()}


def _allowed(product: FewRows, columns: Columns, limits: Limits) -> npt.NDArray[np.bool_]:
    """Check for each candidate that it keeps the limits, that its blocks are mostly filled, and
    that not too much is written out."""
    threads, groups, each, turns = (columns[name] for name in _VALUES)
    filled = [
        each <= _filled(product.rows),
        groups <= _filled(-(-product.columns // product.group)),
        threads * turns <= max(_LEAST_THREADS, _filled(product.runs)),
    ]
    allowed: npt.NDArray[np.bool_] = np.logical_and.reduce(filled)
    most = product.group * RUN
    allowed &= (each * turns * most <= _MOST_STATEMENTS) | ((each == 1) & (turns == 1))
    allowed &= (threads * groups <= limits.threads) & (threads * groups >= _LEAST_THREADS)
    # The sums of each thread, if none are exchanged.
    parts = np.where(limits.lanes > 1, -(-threads // limits.lanes), threads) * groups
    nbytes = parts * each * product.group * max(4, limits.element_bytes)
    return allowed & (nbytes <= limits.workgroup_bytes)


def _filled(extent: int) -> int:
    return 1 << (extent - 1).bit_length()
