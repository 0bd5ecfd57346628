"""The rule `points`: one thread for each point of a loop nest. It can schedule every kernel, and is
the baseline for all other rules.

    for i in serial(4):              for p in block(1):
        for j in serial(9):   →          for t in thread(64):
            y[i, j] = x[j]                   if p * 64 + t < 36:
                                                 y[(p * 64 + t) // 9, …] = x[…]

A thread computes the sum that it stores in a local variable. If a device writes whole words only,
and elements share words, a thread computes all elements of a word. Statements that depend on each
other run on one thread, which is slow and reported as such.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.ir.affine import Simplifier
from farrier.ir.choices import with_usual_choices
from farrier.ir.dim import Extent
from farrier.ir.expr import MemoryScope, Reduce
from farrier.ir.loop import Alloc, Block, For, Function, LoopKind, Stmt
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.substitute import Substitution
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.ir.work import statements_run
from farrier.lower.loops import to_loops
from farrier.records import RuleId
from farrier.schedule import Schedule, ScheduleError
from farrier.schedule.dependence import conflicts
from farrier.schedule.nest import NestView, allocated
from farrier.space import Columns, Decisions, Estimate, Knob, Space
from farrier.space.inline import inline
from farrier.space.operations import count_points, reads_of

RULE = RuleId("points", version=1)
_THREADS = (64, 32, 128, 256)  # The threads of a block; the first is the usual number.
# Rates that only rank schedules: statements per second of a small GPU, and of a single thread.
_RATE = 1e11
_RATE_ALONE = 1e8
_LAUNCH_S = 5e-6
_WORD = 4  # bytes


def space(program: TensorProgram | Function, packed: frozenset[DType] = frozenset()) -> Space:
    """Return the schedule space of a kernel, whose knob is the number of threads of a block.
    `packed` are the dtypes of `Limits.packed`."""
    if isinstance(program, Function):
        base = Schedule(with_usual_choices(program))
    else:
        program = inline(program)
        base = with_local_sums(Schedule(to_loops(program)), program)
    nests = split_up(base)
    work = max(1.0, statements_run(base.function.body, 1))
    alone = sum(statements_run(nest.stmt, 1) for nest in nests if nest.is_alone)

    def estimate(columns: Columns) -> Estimate:
        seconds = _LAUNCH_S * len(nests) + work / _RATE + alone / _RATE_ALONE
        ranked = seconds * (1 + abs(columns["threads"] - _THREADS[0]) / 1e4)
        return Estimate(ranked, {"overhead": ranked})

    def schedule(decisions: Decisions) -> Schedule:
        return bind_points(base, nests, decisions["threads"], packed)

    threads = Knob("threads", _THREADS)
    space = Space(RULE, (threads,), lambda columns: columns["threads"] > 0, estimate, schedule)
    if alone > 1:
        space.slow_reason = "its statements depend on each other, so one thread runs them"
    return space


def with_the_rest(
    schedule: Schedule, program: TensorProgram, done: frozenset[str], packed: frozenset[DType]
) -> Schedule:
    """Schedule all nests that are not launches yet, as launches with one thread for each point. The
    nests of the buffers `done` are launches already. `packed` are the dtypes of `Limits.packed`."""
    schedule = with_local_sums(schedule, program, done)
    return bind_points(schedule, split_up(schedule), _THREADS[0], packed)


@dataclasses.dataclass(frozen=True, slots=True)
class Nest:
    """A loop nest that becomes a launch. `points` are its outermost loops whose iterations are
    independent, for which there is one thread each. If `is_alone` is true, the nest has no such
    loop: the statements depend on each other, and a single thread executes them."""

    stmt: For
    points: tuple[str, ...]
    is_alone: bool


def with_local_sums(
    schedule: Schedule, program: TensorProgram, done: frozenset[str] = frozenset()
) -> Schedule:
    """Move the computation of each sum of a program into the iteration that reads it, where that is
    possible. The sums in `done` are not moved."""
    outputs = {buffer.name for buffer in program.outputs}
    for stage in program.stages:
        if isinstance(stage.body, Reduce) and stage.axes and stage.buffer.name not in done:
            attempt = copy(schedule)
            try:
                _compute_locally(attempt, program, stage, stage.buffer.name in outputs)
            except ScheduleError:
                continue  # Other elements read the sum as well, so it becomes a launch of its own.
            schedule = attempt
    return schedule


def _compute_locally(
    schedule: Schedule, program: TensorProgram, stage: Stage, is_output: bool
) -> None:
    """Move the computation of a sum into the innermost loop of the nest that reads it. Raises
    ScheduleError if several iterations read the same element, if an iteration reads several
    elements, or if several nests read the sum."""
    name = stage.buffer.name
    nest = NestView(schedule.function, "points")
    if is_output:
        schedule.apply("cache_write", name, f"{name}_sum")
        name, reader = f"{name}_sum", stage
    else:
        readers = [other for other in program.stages if reads_of(name, [other])]
        if len(readers) != 1 or not readers[0].axes or isinstance(readers[0].body, Reduce):
            nest.fail(f"no single stage of elements reads {name}")
        reader = readers[0]
        if count_points(reader.axes) > count_points(stage.axes):
            nest.fail(f"several iterations read an element of {name}")
    schedule.apply("compute_at", name, f"{reader.buffer.name}_{reader.axes[-1].name}")
    (local,) = (b for b in allocated(schedule.function.body) if b.name == name)
    if local.type.size != 1:
        nest.fail(f"an iteration reads several elements of {name}")


def copy(schedule: Schedule) -> Schedule:
    copied = Schedule(schedule.function)
    copied.trace = schedule.trace
    return copied


def split_up(schedule: Schedule) -> tuple[Nest, ...]:
    """Divide the function of a schedule so that each of its statements is in a loop nest of its
    own. Memory that several nests use is moved to device memory. Return the nests that are not
    launches yet."""
    nests: list[Nest] = []

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Block):
            return map_children(stmt, visit)
        if isinstance(stmt, For) and stmt.kind is LoopKind.BLOCK:
            return stmt
        if isinstance(stmt, Alloc):
            buffer = dataclasses.replace(stmt.buffer, scope=MemoryScope.WORKSPACE)
            body = Substitution(buffers={buffer.name: buffer}).stmt(stmt.body)
            return Alloc(buffer, visit(body))
        stmt = _with_local_memory(stmt)
        points = _independent(stmt, ranges)
        if not points:
            stmt = For(f"alone{len(nests)}", 1, LoopKind.SERIAL, stmt)
        assert isinstance(stmt, For)
        nests.append(Nest(stmt, points or (stmt.var,), not points))
        return stmt

    ranges = NestView(schedule.function, "points").ranges()
    body = visit(schedule.function.body)
    schedule.function = dataclasses.replace(schedule.function, body=body)
    return tuple(nests)


def _with_local_memory(stmt: Stmt) -> Stmt:
    """Return the statement with its scratch memory changed to memory of a single thread."""
    buffers = {
        buffer.name: dataclasses.replace(buffer, scope=MemoryScope.LOCAL)
        for buffer in allocated(stmt)
        if buffer.scope is MemoryScope.WORKSPACE
    }
    return Substitution(buffers=buffers).stmt(stmt) if buffers else stmt


def _independent(stmt: Stmt, ranges: Mapping[str, Extent]) -> tuple[str, ...]:
    """Return the outermost loops of a nest whose iterations are independent."""
    names: list[str] = []
    while isinstance(stmt, For):
        simplifier = Simplifier(ranges)
        if stmt.kind is not LoopKind.INDEPENDENT and conflicts(
            stmt.body, frozenset(names), simplifier, [stmt.var]
        ):
            break
        names.append(stmt.var)
        stmt = stmt.body
    return tuple(names)


def bind_points(
    base: Schedule, nests: Sequence[Nest], threads: int, packed: frozenset[DType] = frozenset()
) -> Schedule:
    """Schedule each nest as a launch over its points. Each thread computes one point, or the points
    of one word if the nest writes dtypes in `packed`."""
    schedule = copy(base)
    for number, nest in enumerate(nests):
        for name in nest.points:
            if NestView(schedule.function, "points").loop(name).kind is LoopKind.SERIAL:
                schedule.independent(name)  # The fused loop would be harder to analyse.
        points = nest.points[0]
        for position, inner in enumerate(nest.points[1:]):
            points = schedule.fuse(points, inner, f"point{number}_{position}")
        each = 1 if nest.is_alone else _neighbours(nest.stmt, packed)
        outer, inner = schedule.split(points, threads * each, f"block{number}", f"thread{number}")
        if each > 1:
            inner, _ = schedule.split(inner, each, f"word{number}", f"part{number}")
        schedule.bind(outer, "block")
        schedule.bind(inner, "thread")
    return schedule


def _neighbours(stmt: Stmt, packed: frozenset[DType]) -> int:
    """Return the number of elements that one thread must write together: the elements that share a
    32-bit word, for the narrowest dtype in `packed` that the nest writes. It is 1 if the nest
    writes none of these dtypes."""
    written = (b.dtype for s in walk_stmts(stmt) for b in s.writes if b.scope is MemoryScope.PARAM)
    return max((_WORD // dtype.nbytes for dtype in written if dtype in packed), default=1)
