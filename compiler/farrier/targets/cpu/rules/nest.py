"""Loop nests of operators: their vector loops in vectors of the target, their parallel loops shared
by the threads if there is enough to do.

Operators declare such loops. A loop that none declares is shared too if the dependence analysis
proves that its iterations are independent:

    before:  for i in serial(4096):    y[i] = x[p[i]]
    after:   for i in parallel(4096):  y[i] = x[p[i]]

Loops that remain serial and scalar have a reason: the conflict that the analysis names.
"""

from __future__ import annotations

import dataclasses
from typing import assert_never

import numpy as np

from farrier.ir.dim import bounds, typical
from farrier.ir.loop import (
    Alloc,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.statements import below
from farrier.ir.work import USUAL_TRIPS, USUALLY_TAKEN, statements_run
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.errors import ScheduleError
from farrier.schedule.kind_primitives import parallel, serialize
from farrier.schedule.nest import loops
from farrier.space.machine import Machine
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets import Target

RULE = RuleId("nest", version=8)
# Cycles of a statement.
_CYCLES = 2.0
# The vectors of one loop up to which each has code of its own.
_UNROLLED = 8
# An undeclared loop is shared if it takes that many times the cost of sharing it: `_CYCLES` may be
# wrong by that factor.
_WORTH_SHARING = 8
# The part of a nest's statements that is worth an analysis, and makes the nest slow if it stays
# serial and scalar.
_HOT = 0.5


def space(function: Function, target: Target, threads: int) -> Space:
    """Return the space of a loop function: its parallel loops are shared, or are not."""
    machine = Machine.of(target, threads)
    plan = _Plan.of(function, machine)
    knob = Knob("parallel", (0, 1) if plan.regions and threads > 1 else (0,))

    def estimate(columns: Columns) -> Estimate:
        shares = columns["parallel"] > 0
        workers = np.where(shares, machine.threads, 1)
        seconds = plan.serial_s + plan.shared_s / workers
        seconds = np.maximum(seconds, 1e-9) + machine.fork_join * plan.regions * shares
        return Estimate(seconds, {"overhead": seconds})

    def schedule(decisions: Decisions) -> Schedule:
        return _schedule(function, plan, shares=bool(decisions["parallel"]))

    nest = Space(RULE, (knob,), lambda columns: columns["parallel"] >= 0, estimate, schedule)
    nest.slow_reason = plan.reason
    return nest


@dataclasses.dataclass
class _Plan:
    """The loops of a nest that threads may share: the loops that the operator declares, and the
    `proven` ones, which take the place of declared loops of one iteration, `alone`.
    `regions` are the times that threads begin to share a loop; work is in statements."""

    function: Function
    machine: Machine
    whole: float
    regions: float = 0.0
    shared: float = 0.0
    vectors: float = 0.0
    proven: list[str] = dataclasses.field(default_factory=list)
    alone: list[str] = dataclasses.field(default_factory=list)
    refusals: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, function: Function, machine: Machine) -> _Plan:
        plan = cls(function, machine, statements_run(function.body, machine.lanes))
        plan._visit(function.body, 1.0)
        return plan

    @property
    def shared_s(self) -> float:
        return self._seconds(self.shared)

    @property
    def serial_s(self) -> float:
        return self._seconds(self.whole - self.shared)

    @property
    def reason(self) -> str | None:
        """The reason why most of the nest stays serial and scalar; None if it does not."""
        if self.whole - self.shared - self.vectors <= _HOT * self.whole:
            return None
        reason = "its loops run in order on one thread"
        return f"{reason}: {self.refusals[0]}" if self.refusals else reason

    def _visit(self, stmt: Stmt, times: float) -> None:
        """Count the shared work and the vectors within a statement that runs `times` times."""
        match stmt:
            case For(_, extent, LoopKind.PARALLEL, _) if typical(extent) > 1:
                self.regions += 1
                self.shared += times * statements_run(stmt, self.machine.lanes)
            case For(var, _, LoopKind.PARALLEL, body):
                self._visit_alone(var, body, times)
            case For(_, _, LoopKind.VECTORIZED, _):
                self.vectors += times * statements_run(stmt, self.machine.lanes)
            case For(_, extent, _, body):
                if not self._is_shared(stmt, times):
                    self._visit(body, times * typical(extent))
            case If(_, then, otherwise):
                self._visit(then, times * USUALLY_TAKEN)
                if otherwise is not None:
                    self._visit(otherwise, times)
            case While(_, body):
                self._visit(body, times * USUAL_TRIPS)
            case Block() | Alloc():
                for child in below(stmt):
                    self._visit(child, times)
            case Store() | Prefetch() | Intrinsic():
                pass
            case _:
                assert_never(stmt)

    def _visit_alone(self, var: str, body: Stmt, times: float) -> None:
        """Visit the body of a declared loop of one iteration, which has nothing to share: if a loop
        within is proven independent, that one takes its place."""
        declared, proven = self.function, len(self.proven)
        self.function = serialize(declared, var)
        self._visit(body, times)
        if len(self.proven) == proven:
            self.function = declared
        else:
            self.alone.append(var)

    def _is_shared(self, loop: For, times: float) -> bool:
        """Have threads share an undeclared loop if it is hot, long and proven independent."""
        work = statements_run(loop, self.machine.lanes)
        if work * times < _HOT * self.whole or loop.kind is not LoopKind.SERIAL:
            return False
        if any(inner.kind is LoopKind.PARALLEL for inner in loops(loop.body)):
            return False
        if self._seconds(work) < _WORTH_SHARING * self.machine.fork_join:
            self.refusals.append(f"{loop.var} is too short to be shared")
            return False
        try:
            parallel(self.function, loop.var)
        except ScheduleError as refusal:
            self.refusals.append(refusal.reason)
            return False
        self.proven.append(loop.var)
        self.regions += times
        self.shared += work * times
        return True

    def _seconds(self, statements: float) -> float:
        return statements * _CYCLES / self.machine.hertz


def _schedule(function: Function, plan: _Plan, *, shares: bool) -> Schedule:
    lanes = plan.machine.lanes
    schedule = Schedule(function)
    for var in plan.alone if shares else ():
        schedule.serialize(var)
    for loop in loops(function.body):
        if loop.kind is LoopKind.VECTORIZED and bounds(loop.extent)[1] > lanes:
            chunks, _ = schedule.split(loop.var, lanes)
            extent = loop.extent
            if isinstance(extent, int) and extent <= _UNROLLED * lanes:
                schedule.unroll(chunks)
        elif loop.kind is LoopKind.PARALLEL and not shares:
            schedule.serialize(loop.var)
        elif loop.var in plan.proven and shares:
            schedule.parallel(loop.var)
    return schedule
