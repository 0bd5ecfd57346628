"""Primitive parallel: the iterations of a loop on any thread."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import conv_bias_relu, matmul, softmax
from tests.schedule.random_nests import functions, shifts

MATMUL = matmul(6, 10, 5)
SHEAR = """
@function
def shear(x: f32[8, 8]):
    for i in serial(7):
        for j in serial(7):
            x[i + 1, j] = x[i, j + 1] + 1.0
"""


def test_rows_that_no_other_iteration_touches_are_shared_out():
    actual = body(scheduled(MATMUL, 'parallel("y_m")', 'parallel("y_init_n")'))
    assert "for y_m in parallel(6):" in actual
    assert "for y_init_n in parallel(10):" in actual


def test_a_buffer_of_each_iteration_does_not_hinder():
    conv = conv_bias_relu(3, 8, 6, block=4)
    actual = body(scheduled(conv, 'compute_at("conv", "y_oc")', 'parallel("y_oc")'))
    assert "for y_oc in parallel(8):" in actual


def test_it_refuses_a_sum():
    assert_refused(MATMUL, 'parallel("y_k")', "iterations of y_k conflict: one reads y, another")


def test_it_refuses_iterations_that_depend_on_each_other():
    assert_refused(SHEAR, 'parallel("i")', "iterations of i conflict")


@pytest.mark.parametrize(("outer", "inner"), [("y_m", "y_n"), ("y_n", "y_m"), ("y_m", "y_k")])
def test_it_refuses_a_loop_within_or_around_another(outer, inner):
    reason = f"{inner} within or around {outer}: parallel loops do not nest"
    assert_refused(MATMUL, f'parallel("{inner}")', reason, after=(f'parallel("{outer}")',))


def test_it_refuses_a_loop_that_has_a_kind():
    assert_refused(MATMUL, 'parallel("y_m")', "y_m is unrolled", after=('unroll("y_m")',))


def test_it_refuses_a_loop_that_is_not_there():
    assert_refused(MATMUL, 'parallel("q")', "there is no loop q; the loops are y_init_m")


def test_it_refuses_threads_that_would_share_what_is_local():
    step, after = 'parallel("power_i")', ('set_scope("most", "local")',)
    reason = "the threads of power_i would share most, which is local"
    assert_refused(softmax(4, 9), step, reason, after=after)


def test_it_refuses_threads_that_would_share_a_workspace():
    after = ('compute_at("conv", "y_oc")', 'set_scope("conv", "workspace")')
    reason = "the threads of y_oc would share the workspace buffer conv"
    assert_refused(conv_bias_relu(3, 8, 6, block=4), 'parallel("y_oc")', reason, after=after)


def test_it_keeps_results():
    nests = st.one_of(functions(), shifts())
    assert_keeps_results("parallel", lambda dice: (dice.loop(),), nests)
