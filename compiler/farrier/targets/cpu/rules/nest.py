"""Loop nests that an operator gives as such: its vector loops in vectors of the target, its
parallel loops shared by the threads where there is enough to do."""

from __future__ import annotations

import numpy as np

from farrier.ir.dim import bounds
from farrier.ir.loop import Function, LoopKind
from farrier.ir.work import statements_run
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.nest import loops
from farrier.space.machine import Machine
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets import Target

RULE = RuleId("nest", version=7)
_CYCLES = 2.0  # a statement
_UNROLLED = 8  # vectors of one loop up to which each has code of its own


def space(function: Function, target: Target, threads: int) -> Space:
    """The space of a loop function: whether its parallel loops are shared."""
    machine = Machine.of(target, threads)
    shared = [loop.var for loop in loops(function.body) if loop.kind is LoopKind.PARALLEL]
    work = statements_run(function.body, machine.lanes) * _CYCLES / machine.hertz

    def estimate(columns: Columns) -> Estimate:
        parallel = columns["parallel"] > 0
        workers = np.where(parallel, machine.threads, 1)
        seconds = max(work, 1e-9) / workers + machine.fork_join * len(shared) * parallel
        return Estimate(seconds, {"overhead": seconds})

    def schedule(decisions: Decisions) -> Schedule:
        made = Schedule(function)
        for loop in loops(function.body):
            if loop.kind is LoopKind.VECTORIZED and bounds(loop.extent)[1] > machine.lanes:
                chunks, _ = made.split(loop.var, machine.lanes)
                extent = loop.extent
                if isinstance(extent, int) and extent <= _UNROLLED * machine.lanes:
                    made.unroll(chunks)
            elif loop.kind is LoopKind.PARALLEL and not decisions["parallel"]:
                made.serialize(loop.var)
        return made

    knob = Knob("parallel", (0, 1) if shared and threads > 1 else (0,))
    return Space(RULE, (knob,), lambda columns: columns["parallel"] >= 0, estimate, schedule)
