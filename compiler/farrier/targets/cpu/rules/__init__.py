"""The selection of the schedule rule for a program: the first rule that matches, in competition
with the schedule templates of other packages."""

from __future__ import annotations

from farrier.ir.dim import Undecided
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.schedule.errors import ScheduleError
from farrier.space.joined import JoinedSpace
from farrier.space.space import Space
from farrier.space.task_features import task_features
from farrier.targets.cpu.rules import (
    attention,
    attention_tile,
    block_panel,
    block_tile,
    bottleneck,
    elementwise,
    inner_product,
    matrix_tile,
    nest,
    register_tile,
    rows,
    sketch,
    winograd,
)
from farrier.targets.cpu.target import CpuTarget
from farrier.templates import Problem, beside

RULES = (
    block_panel,
    block_tile,
    matrix_tile,
    inner_product,
    register_tile,
    bottleneck,
    winograd,
    attention_tile,
    attention,
    rows,
    elementwise,
)
IDS = frozenset(module.RULE for module in (*RULES, nest)) | sketch.RULES

# Rules for programs whose best schedule varies so much that sketches may be faster.
_WITH_SKETCHES = (register_tile.RULE, rows.RULE)


def for_program(program: TensorProgram | Function, target: CpuTarget, threads: int) -> Space:
    """Return the schedule space of a kernel that `threads` threads run: that of the first rule that
    matches, joined with the schedules of installed templates and of sketches where these apply."""
    if isinstance(program, Function):
        return _about(nest.space(program, target, threads), program, target, threads)
    built_in = _about(_first(program, target, threads), program, target, threads)
    space = beside(built_in, Problem(program, target, threads, target.machine(threads)))
    return _with_sketches(space, built_in, program, target, threads)


def _with_sketches(
    space: Space, built_in: Space, program: TensorProgram, target: CpuTarget, threads: int
) -> Space:
    """Return `space` with the sketches of the program as further candidates for a search. Return it
    unchanged if the rule of the built-in space does not admit alternatives, or if a template has
    replaced the built-in space."""
    if space is not built_in or built_in.rule not in _WITH_SKETCHES:
        return space

    def later() -> list[Space]:
        spaces = sketch.spaces(program, target, threads)
        return [_about(each, program, target, threads) for each in spaces]

    return JoinedSpace([built_in], built_in, later, sketch.RULES)


def _first(program: TensorProgram, target: CpuTarget, threads: int) -> Space:
    """Return the schedule space of the first rule that matches a program.

    If the program has open (dynamic) dims, the rule's default schedule must also apply without an
    error, because a property that holds for constant extents may not be provable for symbols. Each
    rule that is skipped is recorded in `passed_over`, with the reason. If no rule matches, return
    the space of the program's sketches, which exist for every program.
    """
    passed_over: list[str] = []
    space: Space | None
    for rule in RULES:
        try:
            space = rule.space(program, target, threads)
            if space is None:
                continue
            if program.dims:
                space.try_default()
        except (ScheduleError, Undecided) as error:
            (reason, *_) = str(error).splitlines()
            passed_over.append(f"{rule.RULE.name}: {reason}")
        else:
            break
    else:
        space = sketch.space(program, target, threads)
    space.passed_over = tuple(passed_over)
    return space


def _about(
    space: Space, program: TensorProgram | Function, target: CpuTarget, threads: int
) -> Space:
    """Set two attributes of a space, and of the spaces that it joins: the program, and the features
    of the task and the machine for the learned cost model. Return the space."""
    for part in (space, *(space.spaces if isinstance(space, JoinedSpace) else ())):
        part.program = program
        part.describe = lambda: {**task_features(program), **target.machine(threads).features()}
    return space
