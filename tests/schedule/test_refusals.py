"""A primitive that would change the result is refused, says why, and leaves the function alone."""

from __future__ import annotations

import pytest

from farrier.errors import CompilerError
from farrier.ir.expr import Scope
from farrier.ir.parser import parse_ir
from farrier.ir.types import Layout, PhysicalDim
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule, ScheduleError, Trace
from tests.schedule.programs import conv_bias_relu, matmul, softmax

MATMUL = matmul(6, 10, 5)
CONV = conv_bias_relu(3, 8, 6, block=4, halo_out=1)
SOFTMAX = softmax(4, 9)


def _vectorized(s):
    s.vectorize("y_k")


def _parallel_rows(s):
    s.parallel("power_i")


REFUSALS = {
    "no such loop": (
        MATMUL,
        None,
        lambda s: s.unroll("y_q"),
        "no loop y_q; the loops are y_init_m",
    ),
    "name taken": (MATMUL, None, lambda s: s.split("y_m", 2, "y_n", "i"), "a loop y_n already"),
    "one name twice": (MATMUL, None, lambda s: s.split("y_m", 2, "i", "i"), "a loop i already"),
    "dot of a factor": (MATMUL, None, lambda s: s.dot("y_n"), "something else than a sum into one"),
    "dot of no product": (
        SOFTMAX,
        None,
        lambda s: s.dot("norm_k"),
        "adds something else than products",
    ),
    "dot of a vector": (MATMUL, _vectorized, lambda s: s.dot("y_k"), "y_k is vectorized"),
    "group of loops": (MATMUL, None, lambda s: s.group("y_m"), "something else than a store"),
    "group of a sum": (MATMUL, None, lambda s: s.group("y_k"), "iterations of y_k conflict"),
    "factor": (MATMUL, None, lambda s: s.split("y_m", 0), "a factor of 0 for y_m"),
    "split what is shared": (
        SOFTMAX,
        _parallel_rows,
        lambda s: s.split("power_i", 2),
        "power_i is parallel",
    ),
    "serialize a vector": (MATMUL, _vectorized, lambda s: s.serialize("y_k"), "y_k is vectorized"),
    "fuse across": (MATMUL, None, lambda s: s.fuse("y_m", "y_k", "f"), "not stand directly within"),
    "cut at the end": (MATMUL, None, lambda s: s.cut("y_k", 9, "r"), "does not divide in two"),
    "cut a vector": (MATMUL, _vectorized, lambda s: s.cut("y_k", 2, "r"), "y_k is vectorized"),
    "cut to a loop's name": (MATMUL, None, lambda s: s.cut("y_k", 2, "y_n"), "a loop y_n already"),
    "not a nest": (MATMUL, None, lambda s: s.reorder("y_m", "y_init_n"), "not in the perfect nest"),
    "parallel sum": (MATMUL, None, lambda s: s.parallel("y_k"), "iterations of y_k conflict"),
    "nested parallel": (
        MATMUL,
        lambda s: s.parallel("y_m"),
        lambda s: s.parallel("y_n"),
        "parallel loops do not nest",
    ),
    "vector of loops": (MATMUL, None, lambda s: s.vectorize("y_n"), "y_n is not innermost"),
    "inline a sum": (CONV, None, lambda s: s.inline("conv"), "written by 2 stores"),
    "inline after split": (
        SOFTMAX,
        lambda s: s.split("power_i", 2),
        lambda s: s.inline("power"),
        "inline before you split",
    ),
    "read elsewhere": (SOFTMAX, None, lambda s: s.compute_at("power", "y_i"), "read outside y_i"),
    "within itself": (
        CONV,
        None,
        lambda s: s.compute_at("conv", "conv_oc"),
        "one of the loops that compute conv",
    ),
    "written after split": (
        CONV,
        lambda s: s.split("conv_oc", 4),
        lambda s: s.compute_at("conv", "y_oh"),
        "compute_at before you split",
    ),
    "scope of an argument": (
        MATMUL,
        None,
        lambda s: s.set_scope("w", Scope.LOCAL),
        "no buffer w is allocated",
    ),
    "local, shared": (
        SOFTMAX,
        _parallel_rows,
        lambda s: s.set_scope("most", Scope.LOCAL),
        "shared by the iterations of the parallel loop power_i",
    ),
    "threads share": (
        SOFTMAX,
        lambda s: s.set_scope("most", Scope.LOCAL),
        _parallel_rows,
        "would share most, which is local",
    ),
    "signature": (
        MATMUL,
        None,
        lambda s: s.transform_layout("x", Layout.blocked(2, 0, 4)),
        "part of the kernel's signature",
    ),
    "half a layout": (
        MATMUL,
        None,
        lambda s: s.transform_layout("w", Layout((PhysicalDim(0), PhysicalDim(1, 1, 4)))),
        "does not cover axis 1",
    ),
    "less memory": (
        conv_bias_relu(3, 6, 4, block=4),
        None,
        lambda s: s.transform_layout("b", Layout.plain(1)),
        "used up to 8, the new layout ends at 6",
    ),
    "merge apart": (
        conv_bias_relu(3, 8, 6, block=4),
        None,
        lambda s: s.merge_axes("conv", 0),
        "do not lie together",
    ),
    "pad to less": (
        conv_bias_relu(3, 8, 6, block=4),
        None,
        lambda s: s.pad_axis("conv", 2, 5),
        "axis 2 of conv has 6 elements, not 5",
    ),
    "cache scheduled": (
        MATMUL,
        lambda s: s.split("y_m", 2, "tile", "row"),
        lambda s: s.cache_write("y", "acc"),
        "not written by its own nests",
    ),
    "copy grows old": (
        SOFTMAX,
        None,
        lambda s: s.cache_read("most", "most_i", "copy"),
        "so a copy would grow old",
    ),
    "factor no sum": (MATMUL, None, lambda s: s.rfactor("y_n", "p"), "is indexed by y_n"),
    "factor a copy": (SOFTMAX, None, lambda s: s.rfactor("y_j", "p"), "no update x = x op e"),
    "prefetch the same": (
        MATMUL,
        None,
        lambda s: s.prefetch("w", "y_m", "y_n"),
        "the same in each iteration",
    ),
    "prefetch outside": (
        MATMUL,
        None,
        lambda s: s.prefetch("w", "y_n", "y_m"),
        "y_m does not stand within y_n",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_primitive_is_refused_with_the_reason_and_the_nest(case):
    program, prepare, wrong, reason = REFUSALS[case]
    schedule = Schedule(to_loops(program))
    if prepare is not None:
        prepare(schedule)
    before, trace = schedule.function, schedule.trace
    with pytest.raises(ScheduleError) as caught:
        wrong(schedule)
    assert reason in caught.value.reason
    assert caught.value.primitive in str(caught.value)
    assert "@function" in str(caught.value)
    assert schedule.function is before
    assert schedule.trace == trace


def test_reorder_refuses_to_swap_iterations_that_depend_on_their_order():
    text = """
@function
def shear(x: f32[8, 8]):
    for i in serial(7):
        for j in serial(7):
            x[i + 1, j] = x[i, j + 1] + 1.0
"""
    schedule = Schedule(parse_ir(text))
    with pytest.raises(ScheduleError, match="depend on their order"):
        schedule.reorder("j", "i")
    with pytest.raises(ScheduleError, match="conflict"):
        schedule.parallel("i")


OVERWRITTEN = """
@function
def swap(a: f32[4], b: f32[4]):
    with alloc(f32[4] in workspace) as t:
        for i in serial(4):
            t[i] = a[i] + 1.0
        for j in serial(4):
            a[j] = 0.0
        for k in serial(4):
            b[k] = t[k]
"""


@pytest.mark.parametrize("move", [lambda s: s.inline("t"), lambda s: s.compute_at("t", "k")])
def test_nothing_is_computed_after_what_it_is_computed_from_has_changed(move):
    schedule = Schedule(parse_ir(OVERWRITTEN))
    with pytest.raises(ScheduleError, match="computed from a, which change in between"):
        move(schedule)


@pytest.mark.parametrize("text", ["split(", "x = 3", "split(1.5)", "split(a)", "split(k=1)"])
def test_text_that_is_no_trace_is_refused(text):
    with pytest.raises(CompilerError, match="not a schedule trace"):
        Trace.parse(text)


def test_an_unknown_primitive_is_refused():
    with pytest.raises(CompilerError, match="no schedule primitive 'shuffle'"):
        Schedule(to_loops(MATMUL)).apply("shuffle", "y_m")
