"""Rule: reductions other than contractions, such as softmax, normalization, means and pooling.

The rows of a program are the output's axes along which every reduction has a separate value for
each index: a mean or a maximum is computed once for a row and used for all its elements. Threads
share the rows; all earlier stages are computed for one row where the row is used. If the output's
contiguous axis is a row axis, and adjacent rows are adjacent in the operands, the lanes of a vector
are rows; otherwise the lanes run along the row, and a reduction along it keeps a vector of partial
results.

    for row in parallel:                         softmax: lanes along the row, or several rows
        high = max(x[row, j]);  exp[j] = …;  sum = sum(exp[j]);  y[row, j] = exp[j] / sum
    for n, block, y, x in parallel:              pool of NCHW16c: lanes are rows
        best[lane] = max(window[lane]);  y[n, block, y, x, lane] = best[lane]

If there are fewer rows than the threads could share, long reductions are divided into parts that
threads compute in parallel (`cpu/units/split_reductions.py`). The parts, their combination, and the
stages that read the result each become such a kernel, one after another.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from farrier.ir.expr import Reduce
from farrier.ir.tensor import TensorProgram
from farrier.ir.types import DType
from farrier.lower.contiguous_axes import with_joined_axes
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.rewrites import accumulate, without_halos
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.sketch import has_residues, is_wide_contraction
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.row_kernel import RowKernel
from farrier.targets.cpu.units.split_reductions import joined, split_reductions

RULE = RuleId("rows", version=10)
# The dtypes of reductions. Narrow floats are f32 in registers.
_SUMS = (
    *(DType.F16, DType.BF16, DType.F32, DType.F64, DType.BOOL),
    *(DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64),
)
# Each thread has about eight parts of the work, so that other threads can compensate for a late
# one.
_PARTS = 8
# A kernel is worth splitting if it takes at least four times the cost of fork and join on one
# thread.
_WORTH_SPLITTING = 4
# The length of a part is a multiple of four vectors, the largest number of partial results.
_VECTORS = 4


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the schedule space of a program with reductions and one output; None for any other
    program.

    Return None also in two cases: for reductions in dtypes without vector arithmetic, and for
    programs for which the sketches are several times as fast. The latter are contractions, which
    profit from register tiles, and sums with a guard on a remainder, of which most terms can be
    skipped.
    """
    plain = with_joined_axes(without_halos(program))
    output = plain.stages[-1] if plain.stages else None
    if output is None or len(plain.outputs) != 1 or output.buffer.name != plain.outputs[0].name:
        return None
    reduced = [stage for stage in plain.stages if isinstance(stage.body, Reduce)]
    if not reduced or any(stage.buffer.dtype not in _SUMS for stage in reduced):
        return None
    # With a vector of sums, every product would load both operands.
    if is_wide_contraction(program, target.lanes):
        return None
    if has_residues(program):
        return None
    widest = max((stage.buffer.dtype for stage in plain.stages), key=lambda dtype: dtype.bits)
    machine = target.machine(threads).for_elements(widest)
    kernel = RowKernel(accumulate(plain), machine)
    return Space.of(RULE, _in_parts(plain, kernel) or kernel)


def _in_parts(program: TensorProgram, kernel: RowKernel) -> _Parts | None:
    """Return the kernel that computes long reductions in parts; None if there are enough rows for
    the threads to share, or too little work."""
    machine, shares = kernel.machine, kernel.shares
    if machine.threads == 1 or shares >= _PARTS * machine.threads / 2:
        return None
    if kernel.serial_seconds < _WORTH_SPLITTING * machine.fork_join:
        return None
    parts = -(-_PARTS * machine.threads // shares)
    programs = split_reductions(program, parts, machine.lanes * _VECTORS)
    if programs is None:
        return None
    names = ((f"{p.outputs[0].name}_chunk", f"{p.outputs[0].name}_lane") for p in programs)
    kernels = tuple(RowKernel(p, machine, n) for p, n in zip(programs, names, strict=True))
    return _Parts(joined(program, programs), kernels, parts)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """A program that is computed by a sequence of kernels. The last kernel writes the output."""

    program: TensorProgram
    kernels: tuple[RowKernel, ...]
    parts: int

    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("partials", (1, 2, 4)), Knob("parts", (self.parts,)))

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return np.ones(len(columns["partials"]), bool)

    def estimate(self, columns: Columns) -> Estimate:
        """Estimate the time of each candidate as the sum of the kernels' estimates."""
        seconds, compute = np.zeros((2, len(columns["partials"])))
        for kernel in self.kernels:
            estimate = kernel.estimate(_columns(kernel, columns))
            seconds = seconds + estimate.seconds
            compute = compute + estimate.terms["compute"]
        return Estimate(seconds, {"compute": compute})

    def schedule(self, decisions: Decisions) -> Schedule:
        schedule = Schedule(to_loops(self.program))
        chosen = {name: np.array([value]) for name, value in decisions.items()}
        for kernel in self.kernels:
            own = _columns(kernel, chosen)
            kernel.apply(schedule, {name: int(value) for name, (value,) in own.items()})
        return schedule


def _columns(kernel: RowKernel, columns: Columns) -> Columns:
    """Return, for each candidate, the decisions of one kernel in a sequence: its rows are parallel
    if possible, processed one at a time, with the number of partial results in `columns` (1 if the
    lanes of the kernel are rows)."""
    values = {knob.name: knob.values for knob in kernel.knobs()}
    chosen = {"partials": 1, "block": 1, "parallel": max(values["parallel"])}
    own = {name: np.full(len(columns["partials"]), value) for name, value in chosen.items()}
    if not kernel.lanes_are_rows:
        own["partials"] = columns["partials"]
    return own
