"""The rule `rows`: normalization, softmax and other reductions, where each block of threads
processes whole rows. The threads of a row reduce it together, and keep intermediate values between
two passes over the row in workgroup memory.

Successive nests that process each row independently become one launch by the primitive
`share_rows`. All other nests become launches as in the rule `points`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from farrier.ir.affine import Simplifier
from farrier.ir.dim import typical
from farrier.ir.expr import Var
from farrier.ir.loop import For, Function, LoopKind, Stmt
from farrier.ir.substitute import loads
from farrier.ir.tensor import TensorProgram
from farrier.ir.threads import SUBGROUP_SIZE
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, ScheduleError
from farrier.schedule.accesses import writes
from farrier.schedule.nest import NestView, outermost_block
from farrier.schedule.share_rows import Part, Rows
from farrier.schedule.tiling_parts import product_of
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.operations import operations_of
from farrier.targets.gpu import points
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.occupancy import occupancy

RULE = RuleId("rows", version=2)
_VALUES = {"row_threads": (1, 8, 16, 32, 64, 128, 256), "rows_each": (1, 2, 4, 8, 16, 32, 64, 128)}
_LEAST_THREADS = 32  # A block of fewer leaves lanes of its groups idle, on most devices.
_OWN_ROW = 256  # The longest row, in elements, that a single thread should process.
_LINE = 32  # The smallest transfer from memory in bytes.
_HELD = 128  # Bytes of a row that the first-level cache holds for each thread of a unit.
AHEAD = 4  # The loads of a thread that are in flight at the same time.


@dataclasses.dataclass(frozen=True)
class Group:
    """The buffers that one launch computes, and the sizes for its cost: the number of rows, and for
    each pass over a row its elements and the operations on each element. `nbytes` is the size of an
    element in the longest pass, and `least_bytes` that in the pass with the narrowest elements."""

    names: tuple[str, ...]
    rows: int
    passes: tuple[tuple[int, int], ...]
    reductions: int
    nbytes: int
    least_bytes: int
    is_dense: bool


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of a kernel with row-wise groups of nests; None if it has none. The
    knobs are the block shape of the largest group; the other groups use the block shapes with the
    smallest estimated time."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    groups = groups_of(to_loops(program))
    if not groups:
        return None
    return Space.of(RULE, _Kernel(program, groups, limits, device))


def groups_of(function: Function) -> list[Group]:
    """Return the groups of successive nests that `share_rows` can fuse, as long as possible. Groups
    for which other rules are better are left out."""
    statements = outermost_block(function.body)
    nest = NestView(function, "rows")
    groups = []
    at = 0
    while at < len(statements):
        end = at
        while end < len(statements) and not _is_launch(statements[end]):
            end += 1
        for last in range(end, at + 1, -1):
            names = _names(statements[at:last])
            try:
                rows = Rows.of(nest, names)
            except ScheduleError:
                continue
            if len(rows.nests) == last - at and _is_worth_it(rows):
                groups.append(_group(names, rows))
                at = last - 1
                break
        at += 1
    return groups


def _is_launch(stmt: Stmt) -> bool:
    return not isinstance(stmt, For) or stmt.kind is LoopKind.BLOCK


def _names(statements: Iterable[Stmt]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for stmt in statements for name in sorted(writes(stmt))))


def _is_worth_it(rows: Rows) -> bool:
    """Check whether a group makes several passes over a row, or its rows are too long for a single
    thread."""
    passes = [part for part in rows.parts if part.inner]
    return len(passes) > 1 or any(_size(part) > _OWN_ROW for part in passes)


def _size(part: Part) -> int:
    return max(1, typical(product_of(extent for _, extent in part.inner)))


def _group(names: tuple[str, ...], rows: Rows) -> Group:
    passes = [part for part in rows.parts if part.inner]
    longest = max(passes, key=_size)
    return Group(
        names,
        max(1, typical(rows.count)),
        tuple((_size(part), operations_of(part.store.value)) for part in passes),
        sum(part.first is not None for part in rows.parts),
        longest.store.buffer.dtype.nbytes,
        min(part.store.buffer.dtype.nbytes for part in rows.parts),
        _is_dense(longest),
    )


def _is_dense(part: Part) -> bool:
    """Check whether successive iterations of a pass over a row read adjacent elements, for at least
    one of the loads in the pass."""
    inner = Var(part.inner[-1][0])
    simplifier = Simplifier({})
    steps = [
        simplifier.linear(load.indices[load.buffer.element_layout.dims[-1].axis]).terms.get(inner)
        for load in loads(part.store.value)
        if load.indices
    ]
    return any(step == 1 for step in steps)


def cost(group: Group, device: Device, columns: Columns, lanes: int = 1) -> Estimate:
    """Return the estimated seconds of a group for each candidate. `lanes` is the number of threads
    that can exchange registers."""
    threads = columns["row_threads"].astype(np.float64)
    rows = columns["rows_each"].astype(np.float64)
    blocks = np.ceil(group.rows / rows)
    groups = np.ceil(rows * threads / device.group)
    rounds, at_once = occupancy(device, blocks, groups * device.group)
    operations = np.zeros(len(rows))
    turns = np.zeros(len(rows))
    for size, own in group.passes:
        share = np.ceil(size / threads)
        operations += share * (own + 4)
        turns += share
    joins = group.reductions * np.where(threads > 1, 2 * np.sqrt(threads), 0.0)
    waits = np.where(threads > 1, (3 * group.reductions + 1) * device.barrier, 0.0)
    if lanes > 1:
        # An exchange and a sum for each bit, and then a sum for each subgroup of the row.
        is_whole = rows * threads % SUBGROUP_SIZE == 0
        steps = 2 * np.log2(np.minimum(threads, lanes)) + np.maximum(threads / lanes, 1.0) - 1
        joins = np.where(is_whole, group.reductions * steps, joins)
        barriers = np.where(threads > lanes, 2 * group.reductions + 1, 1)
        waits = np.where(is_whole & (threads > 1), barriers * device.barrier, waits)
    issue = rounds * groups * device.group / device.lanes * (operations + 2 * joins)
    stalls = (
        rounds / at_once * (turns / AHEAD * device.memory_latency + joins * device.latency + waits)
    )
    compute = np.maximum(issue, stalls) / device.clock
    # Threads that do not read adjacent elements use little of each cache line, unless the cache
    # keeps the few lines of a short row until all of it has been read.
    lost = _LINE / group.nbytes
    is_short = max(size for size, _ in group.passes) * group.nbytes <= _HELD
    is_dense = group.is_dense if group.rows > 1 else True
    alone = lost if is_dense and not is_short else 1.0
    spread = np.where(threads > 1, 1.0 if is_dense else lost, alone)
    nbytes = group.rows * sum(size for size, _ in group.passes) * group.nbytes
    memory = spread * nbytes / device.bandwidth
    overhead = np.full(len(rows), device.launch_s)
    seconds = np.maximum(compute, memory) + overhead
    terms = {"compute": compute, "memory": memory, "overhead": overhead}
    return Estimate(seconds, terms | {"tiles": blocks})


def allowed(group: Group, limits: Limits, columns: Columns) -> npt.NDArray[np.bool_]:
    """Check for each candidate that it does not exceed the limits of the device, and that its
    blocks have enough threads, most of which have work."""
    threads, rows = columns["row_threads"], columns["rows_each"]
    longest = max(size for size, _ in group.passes)
    ends = {
        "rows_each": 1 << (group.rows - 1).bit_length(),
        "row_threads": max(1, 1 << (longest - 1).bit_length()),
    }
    filled = (rows <= ends["rows_each"]) & (threads <= ends["row_threads"])
    most = math.prod(max(v for v in _VALUES[name] if v <= end) for name, end in ends.items())
    within: npt.NDArray[np.bool_] = filled & (threads * rows <= limits.threads)
    within &= threads * rows >= min(_LEAST_THREADS, 1 << (most.bit_length() - 1)) // 2
    # Each reduction has two places in workgroup memory for each thread, at most.
    nbytes = max(group.nbytes, limits.element_bytes)
    return within & (2 * threads * rows * nbytes * group.reductions <= limits.workgroup_bytes)


def share(schedule: Schedule, group: Group, decisions: Decisions, limits: Limits) -> None:
    """Schedule a group as one launch."""
    rows, threads = decisions["rows_each"], decisions["row_threads"]
    least = group.least_bytes
    most = limits.workgroup_bytes * least // max(least, limits.element_bytes)
    schedule.share_rows(group.names, rows, threads, most, limits.lanes)


def best(group: Group, limits: Limits, device: Device) -> dict[str, int]:
    """Return the decisions with the smallest estimated time for a group."""
    grid = np.array(list(itertools.product(*_VALUES.values())), np.int64).T
    columns = dict(zip(_VALUES, grid, strict=True))
    seconds = cost(group, device, columns, limits.lanes).seconds
    first = int(np.argmin(np.where(allowed(group, limits, columns), seconds, np.inf)))
    return {name: int(column[first]) for name, column in columns.items()}


def share_all(schedule: Schedule, limits: Limits, device: Device) -> frozenset[str]:
    """Schedule each group of nests that can be computed row by row as one launch, with the
    decisions that have the smallest estimated time. Nests that are launches already are left alone.
    Return the names of the buffers that the groups write."""
    names: set[str] = set()
    for group in groups_of(schedule.function):
        share(schedule, group, best(group, limits, device), limits)
        names |= set(group.names)
    return frozenset(names)


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, groups: list[Group], limits: Limits, device: Device
    ) -> None:
        self._program = program
        self._limits, self._device = limits, device
        self._main = max(groups, key=lambda group: group.rows * sum(n for n, _ in group.passes))

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return allowed(self._main, self._limits, columns)

    def estimate(self, columns: Columns) -> Estimate:
        return cost(self._main, self._device, columns, self._limits.lanes)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        share(schedule, self._main, decisions, self._limits)
        done = share_all(schedule, self._limits, self._device) | {*self._main.names}
        return points.with_the_rest(schedule, self._program, done, self._limits.packed)
