"""Any sequence of primitives that is accepted keeps the result, and so does every loop pass."""

from __future__ import annotations

import contextlib
import functools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farrier.ir.dim import Undecided
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import MemoryScope
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from farrier.lower.runner import run_loop_passes
from farrier.schedule import Schedule, ScheduleError, Trace, replay
from farrier.targets.cpu.lowering import ORDER
from tests.ir.bind import bind
from tests.schedule.dice import Dice
from tests.schedule.programs import (
    conv_bias_relu,
    inputs_of,
    matmul,
    softmax,
)

PROGRAMS = {
    "matmul": matmul(5, 7, 3),
    "row": matmul(1, 13, 4),
    "conv": conv_bias_relu(3, 5, 4, kernel=3, block=4, halo_out=1),
    "strided": conv_bias_relu(2, 4, 6, kernel=3, stride=2, block=4),
    "dilated": conv_bias_relu(2, 3, 5, kernel=2, dilation=2, padding=1, block=None),
    "pointwise": conv_bias_relu(5, 6, 3, kernel=1, padding=0, block=4),
    "plain": conv_bias_relu(2, 3, 4, block=None),
    "softmax": softmax(3, 7),
}
KINDS = (
    *("split", "split", "fuse", "reorder", "reorder", "vectorize", "unroll", "parallel", "inline"),
    *("compute_at", "compute_at", "set_scope", "transform_layout", "merge_axes", "cache_write"),
    *("cache_read", "rfactor", "prefetch", "pad_axis", "cut", "split_evenly"),
    "compute_whole_at",
)
NAMES = ("matmul", "row", "conv", "strided", "dilated", "pointwise", "plain", "softmax")


@functools.cache
def _case(name):
    """The naive nests of a program, its inputs and its results."""
    program = PROGRAMS[name]
    function = to_loops(program)
    inputs = inputs_of(program)
    return function, inputs, run_loops(function, inputs)


def _random_step(data, schedule, step, kinds=KINDS):
    dice = Dice(data, schedule, step)
    match dice.pick(kinds):
        case "split":
            schedule.split(dice.loop(), dice.number(1, 5), dice.new("outer"), dice.new("inner"))
        case "split_evenly":
            step = dice.number(1, 3)
            parts, most = dice.number(1, 3), step * dice.number(1, 3)
            names = dice.new("outer"), dice.new("inner")
            schedule.split_evenly(dice.loop(), parts, most, step, *names)
        case "fuse":
            outer = dice.loop()
            at = dice.loops.index(outer)
            schedule.fuse(outer, dice.loops[(at + 1) % len(dice.loops)], dice.new("fused"))
        case "cut":
            schedule.cut(dice.loop(), dice.number(-3, 5), dice.new("rest"))
        case "reorder":
            at, count = dice.number(0, len(dice.loops) - 1), dice.number(2, 4)
            schedule.reorder(*data.draw(st.permutations(dice.loops[at : at + count])))
        case "compute_at":
            schedule.compute_at(dice.buffer(), dice.loop())
        case "compute_whole_at":
            schedule.compute_whole_at(dice.buffer(), dice.loop())
        case "inline":
            schedule.inline(dice.buffer())
        case "set_scope":
            schedule.set_scope(dice.buffer(), dice.pick([MemoryScope.WORKSPACE, MemoryScope.LOCAL]))
        case "transform_layout":
            buffer = dice.any_buffer()
            schedule.transform_layout(buffer, dice.layout(buffer))
        case "merge_axes":
            schedule.merge_axes(dice.buffer(), dice.number(0, 3))
        case "pad_axis":
            schedule.pad_axis(dice.buffer(), dice.number(0, 3), dice.number(1, 9))
        case "cache_write":
            schedule.cache_write(dice.any_buffer(), dice.new("sums"))
        case "cache_read":
            schedule.cache_read(dice.any_buffer(), dice.loop(), dice.new("copy"))
        case "rfactor":
            schedule.rfactor(dice.loop(), dice.new("partial"))
        case "prefetch":
            schedule.prefetch(dice.any_buffer(), dice.loop(), dice.loop())
        case kind:
            getattr(schedule, kind)(dice.loop())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_accepted_primitives_keep_the_result(name, data):
    function, inputs, expected = _case(name)
    schedule = Schedule(function)
    for step in range(data.draw(st.integers(1, 14))):
        before = schedule.function
        try:
            _random_step(data, schedule, step)
        except ScheduleError:
            assert schedule.function is before
    verify_function(schedule.function)
    forms = [schedule.function]
    run_loop_passes(
        schedule.function, ORDER, lambda run: forms.append(run.after) if run.changed else None
    )
    for form in forms:
        verify_function(form)
        for output, array in run_loops(form, inputs).items():
            np.testing.assert_allclose(array, expected[output], rtol=1e-5, atol=1e-5)
    trace = Trace.parse(str(schedule.trace))
    assert trace == schedule.trace
    assert replay(trace, function) == schedule.function


OPEN = """@program(m=dim(0, 9, 5), n=dim(1, 40, 21))
def product(a: f32[m, 3], b: f32[3, n], r: f32[m, n]):
    product: f32[m, n] in workspace
    for i, j in axes(m, n):
        product[i, j] = sum(a[i, k] * b[k, j] for k in axes(3))
    y: f32[m, n]
    for i, j in axes(m, n):
        y[i, j] = product[i, j] + r[i, j] if i < n else 0.0
    return y
"""
SPLITS = ("split", "split", "split", "reorder", "fuse", "vectorize", "unroll", "parallel")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_loop_passes_keep_the_result_at_sizes_that_are_open(data):
    """None, one, some and all of the rows."""
    program = parse_ir(OPEN)
    schedule = Schedule(to_loops(program))
    kinds = (*SPLITS, "set_scope", "compute_at", "cache_write", "split_evenly")
    for step in range(data.draw(st.integers(1, 10))):
        with contextlib.suppress(ScheduleError):
            _random_step(data, schedule, step, kinds)
    forms = [schedule.function]
    try:
        run_loop_passes(
            schedule.function, ORDER, lambda run: forms.append(run.after) if run.changed else None
        )
    except Undecided:
        return  # A loop of an open extent is unrolled; a compilation would take fewer sizes.
    for m, n in ((0, 1), (1, 7), (data.draw(st.integers(0, 9)), data.draw(st.integers(1, 40)))):
        sizes = dict(zip(program.dims, (m, n), strict=True))
        inputs = inputs_of(bind(program, sizes))
        expected = evaluate(bind(program, sizes), inputs)
        for form in forms:
            for output, array in run_loops(bind(form, sizes), inputs).items():
                np.testing.assert_allclose(array, expected[output], rtol=1e-5, atol=1e-5)
