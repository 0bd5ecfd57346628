"""The rule `transposes`: results whose elements lie in another order than those of what they are
computed of, such as an image that is copied to the layout with channels last. Both are accessed
neighbour by neighbour, and tiles of them lie in workgroup memory in between.

The nest becomes a launch by the primitive `transpose_tiles`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from farrier.ir.dim import Extent, typical
from farrier.ir.expr import Reduce
from farrier.ir.loop import Function
from farrier.ir.substitute import loads
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, ScheduleError
from farrier.schedule.nest import NestView
from farrier.schedule.tiling_parts import Axes, product_of
from farrier.schedule.transpose_tiles import Transposed
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.targets.gpu.device import Device, Limits

RULE = RuleId("transposes", version=1)
_VALUES = {"tile": (32, 16, 64), "tile_rows": (8, 4, 2, 16)}
_FEWEST = 8  # Neighbours: a tile of fewer is mostly empty.
_WORD = 4  # bytes
_SECTOR = 32  # The smallest transfer from memory in bytes.


def space(program: TensorProgram | Function, limits: Limits, device: Device) -> Space | None:
    """Return the schedule space of a kernel; None if it is more than one nest, or if its results
    lie in the order of what it reads."""
    if isinstance(program, Function):
        return None
    program = inline(program)
    if len(program.stages) != 1 or isinstance(program.stages[0].body, Reduce):
        return None
    transposed = _transposed(program, limits)
    return (
        None if transposed is None else Space.of(RULE, _Kernel(program, transposed, limits, device))
    )


def _transposed(program: TensorProgram, limits: Limits) -> Transposed | None:
    """Return the access in another order with the largest elements, or None."""
    (stage,) = program.stages
    nest = NestView(to_loops(program), "transposes")
    sources = {load.buffer.name: load.buffer for load in loads(stage.body)}
    for source in sorted(sources.values(), key=lambda buffer: -buffer.dtype.bits):
        try:
            transposed = Transposed.of(nest, stage.buffer.name, source.name)
        except ScheduleError:
            continue
        sizes = [_size(axes) for axes in (transposed.read, transposed.written)]
        if min(sizes) >= _FEWEST and _is_element(transposed, limits):
            return transposed
    return None


def _size(axes: Axes) -> int:
    return _typical(product_of(extent for _, extent in axes))


def _typical(extent: Extent) -> int:
    return max(1, typical(extent))


def _is_element(transposed: Transposed, limits: Limits) -> bool:
    """Check whether a thread can copy single elements: they have whole bytes, and whole words where
    a device accesses nothing less."""
    source, result = transposed.source.dtype, transposed.store.buffer.dtype
    if min(source.bits, result.bits) < 8 or source.nbytes > 2 * _WORD:
        return False
    return limits.element_bytes == 1 or source.nbytes == result.nbytes == _WORD


class _Kernel:
    """The kernel of the rule: its knobs, allowed candidates, cost estimate and schedule."""

    def __init__(
        self, program: TensorProgram, transposed: Transposed, limits: Limits, device: Device
    ) -> None:
        self._program, self._transposed = program, transposed
        self._limits, self._device = limits, device

    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(name, values) for name, values in _VALUES.items())

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        size, rows = (columns[name] for name in _VALUES)
        nbytes = size * (size + 1) * max(self._bytes, self._limits.element_bytes)
        within: npt.NDArray[np.bool_] = size * rows <= self._limits.threads
        return (
            within & (size * rows >= self._device.group) & (nbytes <= self._limits.workgroup_bytes)
        )

    @property
    def _bytes(self) -> int:
        return self._transposed.source.dtype.nbytes

    def estimate(self, columns: Columns) -> Estimate:
        """Return the estimated seconds for each candidate: sectors that are only partly used, and
        the waits of a block for its loads and its barrier."""
        device, transposed = self._device, self._transposed
        size, rows = (columns[name].astype(np.float64) for name in _VALUES)
        batch = _size(transposed.batch)
        sides = [_size(axes) for axes in (transposed.read, transposed.written)]
        blocks = batch * np.ceil(sides[0] / size) * np.ceil(sides[1] / size)
        buffers = transposed.source, transposed.store.buffer
        nbytes = sum(_typical(buffer.nbytes) for buffer in buffers)
        narrowest = min(buffer.dtype.nbytes for buffer in buffers)
        partly = np.maximum(1.0, _SECTOR / (size * narrowest))
        memory = partly * nbytes / device.bandwidth
        groups = np.ceil(size * rows / device.group)
        resident = np.maximum(1, np.floor(device.threads / (groups * device.group)))
        rounds = np.ceil(blocks / device.units)
        turns = size / rows
        issue = rounds * groups * device.group / device.lanes * turns * 24
        waits = rounds / np.minimum(resident, rounds) * (device.memory_latency + device.barrier)
        compute = np.maximum(issue, waits) / device.clock
        overhead = np.full(len(size), device.launch_s)
        seconds = np.maximum(compute, memory) + overhead
        terms = {"compute": compute, "memory": memory, "overhead": overhead}
        return Estimate(seconds, terms | {"tiles": blocks})

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self._program))
        size, rows = (decisions[name] for name in _VALUES)
        result, source = self._transposed.store.buffer.name, self._transposed.source.name
        schedule.transpose_tiles(result, source, size, rows)
        return schedule
