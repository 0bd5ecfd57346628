"""The common parts of the tests of the primitives: steps as text, and results before and after."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.expr import Cast, Load
from farrier.ir.loop import Barrier, For, Function, LoopKind, Stmt
from farrier.ir.operands import operands
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.tensor import TensorProgram
from farrier.ir.verify_kernel import verify_function
from farrier.ir.walk import walk
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule, ScheduleError, Trace, replay
from farrier.schedule.trace import Argument
from tests.intrinsics.written_out import written_out
from tests.ir.bind import bind
from tests.lowering import finalize
from tests.schedule.dice import Dice
from tests.schedule.random_nests import functions

_IN_ANY_ORDER = (LoopKind.VECTORIZED, LoopKind.DOT, LoopKind.GROUP)


def function_of(source: str | TensorProgram | Function) -> Function:
    """The function that the text, or the program's naive nests, are."""
    match source:
        case TensorProgram():
            return to_loops(source)
        case str():
            function = parse_ir(source)
            assert isinstance(function, Function)
            return function
    return source


def scheduled(source: str | TensorProgram | Function, *steps: str) -> Function:
    """The function after these steps, each a line of a trace; its results are the same, and so it
    is when its trace is replayed."""
    before = function_of(source)
    verify_function(before)
    schedule = Schedule(before)
    for step in Trace.parse("\n".join(steps)).steps:
        schedule.apply(step.primitive, *step.args)
    _assert_kept(before, schedule)
    return schedule.function


def body(function: Function) -> str:
    """The text of a function without its signature."""
    lines = print_ir(function).splitlines()
    return textwrap.dedent("\n".join(lines[2:]) + "\n")


def text(block: str) -> str:
    """A triple-quoted block as `body` writes it."""
    return textwrap.dedent(block.removeprefix("\n"))


def assert_refused(
    source: str | TensorProgram | Function, step: str, reason: str, *, after: tuple[str, ...] = ()
) -> None:
    """The step, after those before it, is refused for that reason: the error names what the step
    names, and shows the nest; the function stays as it is, and so does the trace."""
    schedule = Schedule(function_of(source))
    for earlier in Trace.parse("\n".join(after)).steps:
        schedule.apply(earlier.primitive, *earlier.args)
    function, trace = schedule.function, schedule.trace
    (wrong,) = Trace.parse(step).steps
    with pytest.raises(ScheduleError) as caught:
        schedule.apply(wrong.primitive, *wrong.args)
    error = caught.value
    assert reason in error.reason
    assert any(re.search(rf"\b{name}(\b|_)", error.reason) for name in _names(wrong.args))
    assert error.primitive == wrong.primitive
    assert str(error).startswith(f"{wrong.primitive}: ")
    assert print_ir(function) in str(error)
    assert schedule.function is function
    assert schedule.trace == trace


def _names(args: tuple[Argument, ...]) -> list[str]:
    """The loops and buffers that a step names."""
    actual: list[str] = []
    for argument in args:
        if isinstance(argument, str):
            actual.append(argument)
        elif isinstance(argument, tuple):
            actual += argument
    return actual


def assert_keeps_results(
    primitive: str,
    arguments: Callable[[Dice], tuple[Any, ...]],
    nests: st.SearchStrategy[Function] | None = None,
    least: int = 20,
    before: Callable[[Dice, Schedule], None] | None = None,
) -> None:
    """Random functions compute the same before and after the primitive, on arguments that a die
    draws, unless it refuses; of a hundred it accepts `least`. `before` schedules a function before
    it is drawn on."""
    accepted = 0

    @given(st.data())
    def on_random_nests(data: st.DataObject) -> None:
        nonlocal accepted
        schedule = Schedule(data.draw(functions() if nests is None else nests))
        if before is not None:
            before(Dice(data, schedule, 0), schedule)
        function, trace = schedule.function, schedule.trace
        verify_function(function)
        args = arguments(Dice(data, schedule, 1))
        try:
            schedule.apply(primitive, *args)
        except ScheduleError:
            assert schedule.function is function
            assert schedule.trace == trace
            return
        accepted += 1
        fresh = Schedule(function)
        fresh.apply(primitive, *args)
        _assert_kept(function, fresh)

    on_random_nests()
    assert accepted >= least, f"only {accepted} random nests were fit for {primitive}"


def _assert_kept(before: Function, schedule: Schedule) -> None:
    after = schedule.function
    verify_function(after)
    final = finalize(after)
    verify_function(final)
    assert_equal_results(before, after)
    assert_equal_results(before, final)
    trace = Trace.parse(str(schedule.trace))
    assert trace == schedule.trace
    assert replay(trace, before) == after


def assert_equal_results(before: Function, after: Function) -> None:
    """Both functions, given the same arrays, leave the same in every parameter; where they have
    dims, at the least, the typical and the greatest. Sums may be added up in another order, and
    what runs at once, in any order."""
    unordered = dataclasses.replace(after, body=_backwards(after.body))
    for sizes in zip(*((d.low, d.typical, d.high) for d in before.dims), strict=True):
        values = dict(zip(before.dims, sizes, strict=True))
        for function in (after, unordered):
            _assert_equal(bind(before, values), bind(function, values))
    if not before.dims:
        for function in (after, unordered):
            _assert_equal(before, function)


def _backwards(stmt: Stmt) -> Stmt:
    """The statement with loops whose iterations run at once as such that run from the last."""
    if isinstance(stmt, For) and stmt.kind in _IN_ANY_ORDER:
        return For(stmt.var, stmt.extent, LoopKind.PARALLEL, _backwards(stmt.body))
    return map_children(stmt, _backwards)


def _run(function: Function, initial: dict[str, Any]) -> dict[str, Any]:
    barriers = [stmt for stmt in walk_stmts(function.body) if isinstance(stmt, Barrier)]
    if any(barrier.copies is None for barrier in barriers):
        return run_threads(function, {}, initial=initial)
    return run_loops(function, {}, initial=initial)


def _assert_equal(before: Function, after: Function) -> None:
    rng = np.random.default_rng(0)
    # Small integers are exact in every dtype, and so are sums of their products.
    inputs = {b.name: rng.integers(-4, 5, b.shape).astype(b.dtype.numpy) for b in before.params}
    expected, actual = (_run(written_out(function), inputs) for function in (before, after))
    assert actual.keys() == expected.keys()
    near = 1e-3 if _rounds(before) else 1e-6
    for name, array in expected.items():
        np.testing.assert_allclose(
            actual[name].astype(float), array.astype(float), near, near, err_msg=name
        )


def _rounds(function: Function) -> bool:
    """Check whether a value within an expression is rounded to a narrow type, which a primitive may
    do before or after it is scaled."""
    casts = (
        node
        for stmt in walk_stmts(function.body)
        for operand in operands(stmt)
        for node in walk(operand)
        if isinstance(node, Cast)
    )
    return any(cast.dtype.is_narrow_float and not isinstance(cast.operand, Load) for cast in casts)
