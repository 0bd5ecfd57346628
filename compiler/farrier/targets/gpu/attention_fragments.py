"""The rule `attention-fragments`: attention in one launch on devices whose subgroups multiply
fragments (tensor cores), by the primitive `attend_fragments`.

It covers a product, a softmax along its rows, and a product of the result whose factors are f16 or
bf16. What stands between the product and the softmax (a scale, a mask) may be any expression of a
score and its place. Rows may have any length. Other attentions are scheduled by the rules
`attention`, `fragments` and `tiles`: those of f32, of a single key, and those whose fragments do
not fit in the registers of a thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from farrier.intrinsics.fragments import FragmentProduct
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, ScheduleError
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.space import Floats
from farrier.targets.gpu import points, rows
from farrier.targets.gpu.attention import Attention, candidates_of
from farrier.targets.gpu.device import Device, Limits
from farrier.targets.gpu.fragment_cost import CHUNK, COPY, RATE
from farrier.targets.gpu.fragments import keep_apart
from farrier.targets.gpu.occupancy import occupancy
from farrier.targets.gpu.product_cost import INDEX_OPERATIONS

RULE = RuleId("attention-fragments", version=1)
_VALUES = {"attend_subgroups": (1, 2, 4, 8), "attend_keys": (16, 32, 64, 128)}
_SUBGROUP = 32
_SCORE_OPERATIONS = 30  # Operations of a score: an exponential, a maximum, a sum, a mask.
# The registers of a thread apart from fragments, and the most in which kernels do not spill: ptxas.
_REGISTERS, _MOST_REGISTERS = 60, 205
# The most with copies in flight. ptxas unrolls a loop of up to 16 copies wholly, a longer one by 4.
_MOST_WITH_COPIES = 240
_UNROLLED, _UNROLLED_BY = 16, 4
_WORD = 4  # Bytes of a register.


@dataclasses.dataclass(frozen=True)
class _OnFragments:
    """An attention, and the declaration of the fragment product that computes it."""

    attention: Attention
    declared: FragmentProduct

    @property
    def depth(self) -> int:
        """The terms of the first product, padded to complete fragments."""
        return _padded(self.attention.first.shape.terms, self.declared.depth)

    @property
    def width(self) -> int:
        """The columns of the last product, padded to complete fragments."""
        return _padded(self.attention.last.shape.columns, self.declared.columns)

    def workgroup_bytes(self, columns: Columns) -> Floats:
        """Return the bytes of workgroup memory of a block: its rows, and a slice of the factors of
        both products."""
        height = columns["attend_subgroups"] * self.declared.rows
        elements = (height + columns["attend_keys"]) * self.depth
        elements = elements + columns["attend_keys"] * self.width
        return elements.astype(np.float64) * self.declared.left.nbytes

    def registers(self, columns: Columns) -> Floats:
        """Return the approximate number of registers of a thread: scores and sums in f32, rows and
        exponentials in narrow types."""
        elements = self.declared.rows * (1.5 * columns["attend_keys"] + self.width + self.depth / 2)
        return _REGISTERS + elements / _SUBGROUP

    def registers_of_copies(self, columns: Columns) -> Floats:
        """Return the approximate number of registers of a thread that hold copies in flight, of a
        slice of one factor."""
        nbytes = max(self.depth, self.width) * self.declared.left.nbytes * columns["attend_keys"]
        turns = nbytes / (CHUNK * columns["attend_subgroups"] * _SUBGROUP)
        at_once: Floats = np.where(turns <= _UNROLLED, turns, _UNROLLED_BY)
        return at_once * (CHUNK / _WORD)


def _padded(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


def space(
    program: TensorProgram | Function,
    limits: Limits,
    device: Device,
    declared: Sequence[FragmentProduct],
) -> Space | None:
    """Return the schedule space of an attention on fragments. None if the kernel is not an
    attention, the device declares no fragment product for it, or its fragments do not fit."""
    if isinstance(program, Function) or not any(each.keeps_places for each in declared):
        return None
    program = inline(program)
    attended = _attention_of(program, [each for each in declared if each.keeps_places])
    if attended is None:
        return None
    kernel = _Kernel(program, attended, limits, device)
    return Space.of(RULE, kernel) if kernel.allowed(_grid()).any() else None


def _grid() -> Columns:
    grid = np.meshgrid(*(np.array(values, np.int64) for values in _VALUES.values()))
    return {name: column.ravel() for name, column in zip(_VALUES, grid, strict=True)}


def _attention_of(
    program: TensorProgram, declared: Sequence[FragmentProduct]
) -> _OnFragments | None:
    smallest = {name: values[0] for name, values in _VALUES.items()}
    for attention in candidates_of(program):
        for each in declared:
            on_fragments = _OnFragments(attention, each)
            try:
                _attend(Schedule(to_loops(program)), on_fragments, smallest)
            except ScheduleError:
                continue
            return on_fragments
    return None


def _attend(schedule: Schedule, on_fragments: _OnFragments, decisions: Decisions) -> None:
    attention = on_fragments.attention
    schedule.attend_fragments(
        (attention.first.total, attention.first.reader),
        attention.between,
        (attention.last.total, attention.last.reader),
        on_fragments.declared.name,
        decisions["attend_subgroups"],
        decisions["attend_keys"],
    )


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, attended: _OnFragments, limits: Limits, device: Device
    ) -> None:
        self._program, self._attended = program, attended
        self._limits, self._device = limits, device

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        attended, first = self._attended, self._attended.attention.first.shape
        within: npt.NDArray[np.bool_] = (
            columns["attend_subgroups"] * _SUBGROUP <= self._limits.threads
        )
        within &= attended.workgroup_bytes(columns) <= self._limits.workgroup_bytes
        registers = attended.registers(columns)
        within &= registers <= _MOST_REGISTERS
        within &= registers + attended.registers_of_copies(columns) <= _MOST_WITH_COPIES
        # Further subgroups and columns would be empty.
        height = columns["attend_subgroups"] * attended.declared.rows
        for size, least, extent in (
            (height, attended.declared.rows, first.rows),
            (columns["attend_keys"], _VALUES["attend_keys"][0], first.columns),
        ):
            within &= size <= max(least, 1 << (extent - 1).bit_length())
        return within

    def estimate(self, columns: Columns) -> Estimate:
        device, attended = self._device, self._attended
        first = attended.attention.first.shape
        groups = columns["attend_subgroups"].astype(np.float64)
        height, keys = groups * attended.declared.rows, columns["attend_keys"].astype(np.float64)
        blocks = first.batch * np.ceil(first.rows / height)
        turns = np.ceil(first.columns / keys)
        rounds, at_once = occupancy(
            device,
            blocks,
            groups * _SUBGROUP,
            attended.registers(columns),
            attended.workgroup_bytes(columns),
        )
        terms = float(attended.depth + attended.width)
        nbytes = keys * terms * attended.declared.left.nbytes
        turn = height * keys * terms / RATE + height * keys * _SCORE_OPERATIONS / device.lanes
        turn += nbytes / CHUNK * (COPY + INDEX_OPERATIONS) / device.lanes
        # Few subgroups leave the unit idle while each waits for its own loads.
        hidden = np.minimum(1.0, at_once * groups / 4)
        results = height * attended.width * COPY / device.lanes
        compute = rounds * (turns * turn / hidden + results) / device.clock
        waits = device.memory_latency + 2 * device.barrier
        overhead = device.launch_s + rounds / at_once * turns * waits / device.clock
        through_cache = blocks * turns * nbytes / device.cache_bandwidth
        seconds = np.maximum(compute, through_cache) + overhead
        of_terms = {"compute": compute, "l2": through_cache, "overhead": overhead, "tiles": blocks}
        return Estimate(seconds, of_terms)

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule, attention = Schedule(to_loops(self._program)), self._attended.attention
        _attend(schedule, self._attended, decisions)
        for factor in ("rows", "columns"):
            keep_apart(schedule, f"{attention.first.total}_{factor}")
        keep_apart(schedule, f"{attention.last.total}_columns")
        done = rows.share_all(schedule, self._limits, self._device) | attention.names
        return points.with_the_rest(schedule, self._program, done, self._limits.packed)
