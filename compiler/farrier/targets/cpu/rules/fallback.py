"""Anything at all: the naive loop nests, one element at a time on one thread. Correct and slow."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import product, typical
from farrier.ir.expr import Reduce
from farrier.ir.tensor import TensorProgram
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.space.machine import Machine
from farrier.space.operations import operations
from farrier.space.space import Columns, Estimate, Knob, Space
from farrier.targets import Target

RULE = RuleId("fallback", version=6)


def space(program: TensorProgram, target: Target, threads: int) -> Space:
    """A space of one candidate, for every program."""
    machine = Machine.of(target, threads)
    work = 0.0
    for stage in program.stages:
        axes = (*stage.axes, *(stage.body.axes if isinstance(stage.body, Reduce) else ()))
        work += (operations([stage]) + 2) * float(typical(product(axis.extent for axis in axes)))

    def estimate(columns: Columns) -> Estimate:
        seconds = np.full(len(columns["serial"]), max(work, 1.0) / machine.hertz)
        return Estimate(seconds, {"overhead": seconds})

    serial = Space(
        RULE,
        (Knob("serial", (1,)),),
        lambda columns: columns["serial"] == 1,
        estimate,
        lambda decisions: Schedule(to_loops(program)),
    )
    serial.slow_reason = "no schedule rule knows it"
    return serial
