"""Rule: operators that are written as loop nests. Their independent loops are shared by threads if
there is enough work, and their innermost loops are vectorized.

An operator marks loops as independent if only the operator can know that they are; the dependence
analysis proves it of other loops. Threads share the outermost independent loops. If these have too
few iterations for all threads, they are fused with the independent loops directly inside them; a
vectorized loop is shared in chunks of vectors:

    before:  for i in serial(4):                  after:  for f in parallel(400):
                 for j in serial(100):                        y[f // 100, f % 100] = x[p[f % 100]]
                     y[i, j] = x[p[j]]

    before:  for i in serial(1048576):            after:  for i_o in parallel(256):
                 y[i] = x[i]                                  for i_i_o in serial(512):
                                                                  for i_i_i in vectorized(8):
                                                                      y[…] = x[…]

If most of a nest remains serial and scalar, the reason is reported: the conflict that the
dependence analysis names.
"""

from __future__ import annotations

import dataclasses
from typing import assert_never

import numpy as np

from farrier.ir.choices import with_choices
from farrier.ir.dim import Extent, bounds, ceildiv, typical
from farrier.ir.expr import MemoryScope
from farrier.ir.loop import (
    Alloc,
    Barrier,
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
from farrier.ir.substitute import variables
from farrier.ir.work import USUAL_TRIPS, statements_run, usually_taken
from farrier.records import RuleId
from farrier.schedule import Schedule
from farrier.schedule.accesses import accesses
from farrier.schedule.errors import ScheduleError
from farrier.schedule.kind_primitives import parallel, vectorize
from farrier.schedule.nest import NestView, loops
from farrier.space.machine import Machine
from farrier.space.space import Columns, Decisions, Estimate, Knob, Space
from farrier.targets.cpu.target import CpuTarget
from farrier.targets.cpu.units.nest_choices import Choices
from farrier.targets.cpu.units.nest_vectors import UNDECIDED, vector_loops

RULE = RuleId("nest", version=9)
# The assumed cycles of a statement.
_CYCLES = 2.0
# A loop of up to this number of vectors is unrolled.
_UNROLLED = 8
# A loop is shared if its time is at least this multiple of the cost of sharing it.
_WORTH_SHARING = 2
# With this number of iterations per thread, no more loops are fused: the last round, in which not
# all threads have an iteration, is then short.
_SHARES = 8
# The elements of a vectorized loop that a thread takes at once: 16 KiB of f32, which fit in the
# first-level cache.
_CHUNK = 4096
# A nest is reported as slow if at least this share of its statements remains serial and scalar.
_HOT = 0.5
# The ratio of the times without and with the use of all registers: a guess, which only ranks the
# two.
_UNHELD = 1.25


def space(function: Function, target: CpuTarget, threads: int) -> Space:
    """Return the schedule space of a loop function. It has two knobs: the first decides whether
    threads share the independent loops, the second whether an iteration keeps the largest possible
    number of values in registers."""
    machine = target.machine(threads)
    choices = Choices(function, machine)
    plan = _Plan.of(with_choices(function, {**choices.held, **choices.parts(threads)}), machine)
    knobs = [Knob("parallel", (0, 1) if plan.regions and threads > 1 else (0,))]
    knobs += [Knob(name, (1, most)) for name, most in choices.held.items() if most > 1]

    def estimate(columns: Columns) -> Estimate:
        shares = columns["parallel"] > 0
        workers = np.where(shares, machine.threads, 1)
        seconds = plan.serial_s + plan.shared_s / workers
        for name, most in choices.held.items():
            seconds = seconds * np.where(columns.get(name, most) == most, 1.0, _UNHELD)
        seconds = np.maximum(seconds, 1e-9) + machine.fork_join * plan.forks * shares
        return Estimate(seconds, {"overhead": seconds})

    def schedule(decisions: Decisions) -> Schedule:
        shares = bool(decisions["parallel"])
        held = {name: decisions.get(name, most) for name, most in choices.held.items()}
        chosen = Schedule(function)
        for name, value in {**held, **choices.parts(threads if shares else 1)}.items():
            chosen.choose(name, value)
        return _Plan.of(chosen.function, machine).apply(chosen, shares=shares)

    nest = Space(RULE, tuple(knobs), lambda columns: columns["parallel"] >= 0, estimate, schedule)
    nest.slow_reason = plan.reason
    return nest


@dataclasses.dataclass(frozen=True)
class _Region:
    """A group of loops that threads execute as one parallel loop: the perfectly nested loops
    `joined`, outermost first, and the chunks of the vectorized loop directly inside them, if
    any."""

    joined: tuple[str, ...]
    vectors: str | None = None
    chunk: int = _CHUNK

    def share(self, schedule: Schedule) -> None:
        names = list(self.joined)
        if self.vectors is not None:
            _mark(schedule, self.vectors)
            names.append(schedule.split(self.vectors, self.chunk)[0])
        for name in self.joined if len(names) > 1 else ():
            _mark(schedule, name)
        outermost, *others = names
        for name in others:
            outermost = schedule.fuse(outermost, name, f"{outermost}_{name}")
        schedule.parallel(outermost)


@dataclasses.dataclass
class _Plan:
    """The schedule of a loop nest: its vectorized loops `vectors`, and the `regions` that threads
    share. `forks` counts how often a region begins. Amounts of work are in executed statements of
    the vectorized nest `with_vectors`."""

    function: Function
    machine: Machine
    vectors: list[str]
    with_vectors: Function
    whole: float = 0.0
    forks: float = 0.0
    shared: float = 0.0
    in_vectors: float = 0.0
    regions: list[_Region] = dataclasses.field(default_factory=list)
    refusals: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, function: Function, machine: Machine) -> _Plan:
        vectors = vector_loops(function, machine.lanes)
        with_vectors = function
        for var in vectors:
            with_vectors = vectorize(with_vectors, var)
        plan = cls(function, machine, vectors, with_vectors)
        plan.whole = plan._work(with_vectors.body)
        plan._visit(with_vectors.body, 1.0)
        return plan

    @property
    def shared_s(self) -> float:
        return self._seconds(self.shared)

    @property
    def serial_s(self) -> float:
        return self._seconds(self.whole - self.shared)

    @property
    def reason(self) -> str | None:
        """The reason why most of the nest remains serial and scalar; None if it does not."""
        if self.whole - self.shared - self.in_vectors <= _HOT * self.whole:
            return None
        reason = "its loops run in order on one thread"
        return f"{reason}: {self.refusals[0]}" if self.refusals else reason

    def apply(self, schedule: Schedule, *, shares: bool) -> Schedule:
        """Vectorize the nest and, if `shares` is true, parallelize its regions."""
        chunked = set()
        for region in self.regions if shares else ():
            region.share(schedule)
            chunked.add(region.vectors)
        for var in self.vectors:
            _vectorize(schedule, f"{var}_i" if var in chunked else var, self.machine.lanes)
        for loop in loops(schedule.function.body):
            if loop.kind is LoopKind.INDEPENDENT:
                schedule.serialize(loop.var)
        return schedule

    def _visit(self, stmt: Stmt, times: float) -> None:
        """Add two amounts for a statement that is executed `times` times: the work that threads
        will share, and the work that will be vectorized."""
        match stmt:
            case For(_, extent, kind, body):
                if self._is_shared(stmt, times):
                    self.forks += times
                    self.shared += times * self._work(stmt)
                elif kind is LoopKind.VECTORIZED:
                    self.in_vectors += times * self._work(stmt)
                else:
                    self._visit(body, times * typical(extent))
            case If(_, then, otherwise):
                self._visit(then, times * usually_taken(stmt))
                if otherwise is not None:
                    self._visit(otherwise, times)
            case While(_, body):
                self._visit(body, times * USUAL_TRIPS)
            case Block() | Alloc():
                for child in below(stmt):
                    self._visit(child, times)
            case Store() | Prefetch() | Intrinsic() | Barrier():
                pass
            case _:
                assert_never(stmt)

    def _is_shared(self, loop: For, times: float) -> bool:
        """If threads profit from sharing a loop and it is independent, add the region that starts
        with the loop. Return whether it was added; otherwise record the reason."""
        if typical(loop.extent) <= 1:
            return False
        if self._seconds(self._work(loop)) < _WORTH_SHARING * self.machine.fork_join:
            self.refusals.append(f"{loop.var} is too short to be shared")
            return False
        try:
            parallel(self.function, loop.var)
        except ScheduleError as refusal:
            self.refusals.append(refusal.reason)
            return False
        self.regions.append(self._region(loop))
        return True

    def _region(self, loop: For) -> _Region:
        joined, trips = list[str](), 1
        enough = _SHARES * self.machine.threads
        while loop.kind in UNDECIDED:
            joined.append(loop.var)
            trips *= bounds(loop.extent)[0]
            inner = loop.body
            if trips >= enough or not isinstance(inner, For) or not self._is_independent(inner):
                return _Region(tuple(joined))
            loop = inner
        chunk = self._chunk(loop.extent, max(trips, 1))
        if loop.kind is LoopKind.VECTORIZED and (not joined or bounds(loop.extent)[1] > chunk):
            return _Region(tuple(joined), loop.var, chunk)
        return _Region(tuple(joined))

    def _chunk(self, extent: Extent, trips: int) -> int:
        """Return the number of elements of a vectorized loop that one iteration of the parallel
        loop processes. It is a multiple of the vector length, but small enough that all threads
        have work, given that the loops around it have `trips` iterations."""
        lanes, parts = self.machine.lanes, ceildiv(self.machine.threads, trips)
        share = typical(ceildiv(extent, parts))
        return min(_CHUNK, typical(ceildiv(max(share, 1), lanes)) * lanes)

    def _is_independent(self, loop: For) -> bool:
        if loop.kind not in (*UNDECIDED, LoopKind.VECTORIZED):
            return False
        try:
            _mark(Schedule(self.function), loop.var)
        except ScheduleError:
            return False
        return True

    def _work(self, stmt: Stmt) -> float:
        return statements_run(stmt, self.machine.lanes)

    def _seconds(self, statements: float) -> float:
        return statements * _CYCLES / self.machine.hertz


def _mark(schedule: Schedule, name: str) -> None:
    """Mark a loop as independent if it is not marked yet. Raises ScheduleError if the dependence
    analysis cannot prove it."""
    loop = NestView(schedule.function, "independent").loop(name)
    if loop.kind is not LoopKind.INDEPENDENT:
        schedule.independent(name)


def _vectorize(schedule: Schedule, name: str, lanes: int) -> None:
    """Vectorize a loop. If the loop is short, or if it indexes register buffers (whose elements
    have no addresses), unroll the loop over its vectors."""
    extent = schedule.extent(name)
    schedule.vectorize(name)
    if bounds(extent) != (lanes, lanes):
        chunks, _ = schedule.split(name, lanes)
        is_short = isinstance(extent, int) and extent <= _UNROLLED * lanes
        if is_short or _indexes_registers(schedule.function, chunks):
            schedule.unroll(chunks)


def _indexes_registers(function: Function, name: str) -> bool:
    """Check whether an index of a register buffer depends on a loop."""
    return any(
        access.buffer.scope is MemoryScope.REGISTER
        and any(name in variables(index) for index in access.indices)
        for access in accesses(NestView(function, "vectorize").loop(name).body)
    )
