"""The rule `attention`: two matrix products and the softmax between them in one launch, by the
schedule primitive `attend`. Each block of threads computes a few rows of scores, which stay in
workgroup memory. Rows of open or great length are therefore left to the rule `tiles`, which uses
three launches."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, ScheduleError
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.targets.gpu import points, rows
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.occupancy import occupancy
from farrier.targets.gpu.product_cost import INDEX_OPERATIONS
from farrier.targets.gpu.tiles import Tiled, products_of

RULE = RuleId("attention", version=2)
_VALUES = {
    "attend_rows": (4, 8, 16, 32),
    "attend_threads": (16, 32),
    "attend_depth": (8, 16, 32),
}
_COLUMNS_EACH = 4  # As for other products: with more, too few threads remain for the rows.
_SUMMED_OPERATIONS = 8  # Operations of a score in the passes over a row, such as an exp.


@dataclasses.dataclass(frozen=True)
class Attention:
    """The two products of an attention, and the names of the buffers that are computed between
    them."""

    first: Tiled
    between: tuple[str, ...]
    last: Tiled

    @property
    def names(self) -> frozenset[str]:
        ends = (self.first.total, self.first.reader, self.last.total, self.last.reader)
        return frozenset((*ends, *self.between))


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of an attention. Return None if the kernel is not an attention, or
    its rows of scores do not fit in workgroup memory."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    attention = _attention_of(program)
    if attention is None:
        return None
    kernel = _Kernel(program, attention, limits, device)
    return Space.of(RULE, kernel) if kernel.allowed(_grid()).any() else None


def _grid() -> Columns:
    grid = np.meshgrid(*(np.array(values, np.int64) for values in _VALUES.values()))
    return {name: column.ravel() for name, column in zip(_VALUES, grid, strict=True)}


def candidates_of(program: TensorProgram) -> Iterator[Attention]:
    """Yield each two successive products of a program, with the stages between them."""
    order = [stage.buffer.name for stage in program.stages]
    for first, last in itertools.pairwise(products_of(program)):
        between = tuple(order[order.index(first.reader) + 1 : order.index(last.total)])
        yield Attention(first, between, last)


def _attention_of(program: TensorProgram) -> Attention | None:
    """Return the first two products of a program that the primitive `attend` can fuse, with the
    stages between them; None if there are none."""
    smallest = {name: values[0] for name, values in _VALUES.items()}
    for attention in candidates_of(program):
        try:
            _attend(Schedule(to_loops(program)), attention, smallest, lanes=1)
        except ScheduleError:
            continue
        return attention
    return None


def _attend(schedule: Schedule, attention: Attention, decisions: Decisions, *, lanes: int) -> None:
    each = _rows_each(decisions["attend_rows"])
    schedule.attend(
        (attention.first.total, attention.first.reader),
        attention.between,
        (attention.last.total, attention.last.reader),
        (decisions["attend_rows"] // each, decisions["attend_threads"]),
        (each, _COLUMNS_EACH),
        decisions["attend_depth"],
        lanes,
    )


def _rows_each(rows: int) -> int:
    return 1 if rows <= _VALUES["attend_rows"][0] else 2


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, attention: Attention, limits: Limits, device: Device
    ) -> None:
        self._program, self._attention = program, attention
        self._limits, self._device = limits, device

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        height, width = columns["attend_rows"], columns["attend_threads"]
        each = np.where(height <= _VALUES["attend_rows"][0], 1, 2)
        within: npt.NDArray[np.bool_] = height // each * width <= self._limits.threads
        return within & (self._workgroup_bytes(columns) <= self._limits.workgroup_bytes)

    def _workgroup_bytes(self, columns: Columns) -> npt.NDArray[np.int64]:
        """Return an upper bound of the workgroup memory of a block in bytes: its scores, a slice of
        both factors of each product, and two numbers per thread for each of two reductions."""
        height, depth = columns["attend_rows"], columns["attend_depth"]
        width = columns["attend_threads"] * _COLUMNS_EACH
        scores = height * self._attention.first.shape.columns
        staged = 2 * depth * (height + width + 2)
        joined = 2 * 2 * height * columns["attend_threads"]
        nbytes: npt.NDArray[np.int64] = 4 * (scores + staged + joined + 4 * height)
        return nbytes

    def estimate(self, columns: Columns) -> Estimate:
        device, first = self._device, self._attention.first.shape
        height = columns["attend_rows"].astype(np.float64)
        each = np.where(height <= _VALUES["attend_rows"][0], 1.0, 2.0)
        depth = columns["attend_depth"].astype(np.float64)
        width = columns["attend_threads"].astype(np.float64) * _COLUMNS_EACH
        threads = height / each * columns["attend_threads"]
        blocks = first.batch * np.ceil(first.rows / height)
        groups = np.ceil(threads / device.group)
        nbytes = self._workgroup_bytes(columns)
        rounds, at_once = occupancy(
            device, blocks, groups * device.group, workgroup_bytes=nbytes.astype(np.float64)
        )
        operations = height * first.columns * _SUMMED_OPERATIONS / threads
        waits = np.full(len(height), 10.0 * device.barrier)
        for shape in first, self._attention.last.shape:
            tiles, turns = np.ceil(shape.columns / width), np.ceil(shape.terms / depth)
            copied = INDEX_OPERATIONS * depth * (height + width) / threads
            step = depth * (each * _COLUMNS_EACH + each + _COLUMNS_EACH + 2)
            operations += tiles * turns * (step + copied)
            waits += tiles * turns * (device.memory_latency + 2 * device.barrier)
        issue = rounds * groups * device.group / device.lanes * operations
        compute = np.maximum(issue, rounds / at_once * waits) / device.clock
        overhead = np.full(len(height), device.launch_s)
        terms = {"compute": compute, "overhead": overhead, "tiles": blocks}
        return Estimate(compute + overhead, terms)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        _attend(schedule, self._attention, decisions, lanes=self._limits.lanes)
        done = rows.share_all(schedule, self._limits, self._device) | self._attention.names
        return points.with_the_rest(schedule, self._program, done, self._limits.packed)
