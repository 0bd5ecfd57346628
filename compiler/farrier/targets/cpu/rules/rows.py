"""Reductions that are not contractions: softmax, normalizations, means, pools.

Values that are computed once and used along a whole row (a mean, a window's maximum) decide the
rows: the output's axes at which every reduction is read at its own point. Rows are shared by the
threads; all earlier stages are computed for one row where it is used. Where the output's contiguous
axis is a row axis, and neighbouring rows lie together in the operands, the lanes are rows;
otherwise they run along the row, and a reduction along it is kept as a vector of partial results.

    for row in parallel:                         softmax: lanes along the row, or several rows
        high = max(x[row, j]);  exp[j] = …;  sum = sum(exp[j]);  y[row, j] = exp[j] / sum
    for n, block, y, x in parallel:              pool of NCHW16c: lanes are rows
        best[lane] = max(window[lane]);  y[n, block, y, x, lane] = best[lane]

Reductions to fewer results than threads could share are computed in parts, side by side
(`cpu/units/split_reductions.py`); the programs of the parts, of what joins them and of what reads
the result are such nests one after another.
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
# The element types of reductions. Registers hold narrow floats as f32.
_SUMS = (
    *(DType.F16, DType.BF16, DType.F32, DType.F64, DType.BOOL),
    *(DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64),
)
# Each thread has eight parts of the work, about, so that the others make up for a late one.
_PARTS = 8
# A kernel that takes less on one thread than four times to fork and join is not worth splitting.
_WORTH_SPLITTING = 4
# A part has a multiple of four vectors of terms: the most partial results.
_VECTORS = 4


def space(program: TensorProgram, target: CpuTarget, threads: int) -> Space | None:
    """Return the space of a program with reductions and one output, whose type may differ; None for
    any other program, for reductions of elements that vectors do not calculate with, and for what a
    sketch computes in a fraction of the time: contractions by tiles of sums, and sums under guards
    by residue by the terms of one residue."""
    plain = with_joined_axes(without_halos(program))
    output = plain.stages[-1] if plain.stages else None
    if output is None or len(plain.outputs) != 1 or output.buffer.name != plain.outputs[0].name:
        return None
    reduced = [stage for stage in plain.stages if isinstance(stage.body, Reduce)]
    if not reduced or any(stage.buffer.dtype not in _SUMS for stage in reduced):
        return None
    if is_wide_contraction(program, target.lanes):  # One vector of sums loads all for each product.
        return None
    if has_residues(program):
        return None
    widest = max((stage.buffer.dtype for stage in plain.stages), key=lambda dtype: dtype.bits)
    machine = target.machine(threads).for_elements(widest)
    kernel = RowKernel(accumulate(plain), machine)
    return Space.of(RULE, _in_parts(plain, kernel) or kernel)


def _in_parts(program: TensorProgram, kernel: RowKernel) -> _Parts | None:
    """The kernel that computes long reductions in parts; None where there are enough rows for the
    threads to share, or too little to do."""
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
    """Kernels one after another, as one: the last writes the output."""

    program: TensorProgram
    kernels: tuple[RowKernel, ...]
    parts: int

    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("partials", (1, 2, 4)), Knob("parts", (self.parts,)))

    def allowed(self, columns: Columns) -> npt.NDArray[np.bool_]:
        return np.ones(len(columns["partials"]), bool)

    def estimate(self, columns: Columns) -> Estimate:
        """The sum of the kernels' estimates, which follow one another."""
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
    """Return the decisions for one of the kernels: its most threads, rows one by one, and the
    chosen number of partial results, where it has any."""
    values = {knob.name: knob.values for knob in kernel.knobs()}
    chosen = {"partials": 1, "block": 1, "parallel": max(values["parallel"])}
    own = {name: np.full(len(columns["partials"]), value) for name, value in chosen.items()}
    if not kernel.lanes_are_rows:
        own["partials"] = columns["partials"]
    return own
