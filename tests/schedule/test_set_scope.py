"""Primitive set_scope: in which memory a buffer lives."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled
from tests.schedule.programs import conv_bias_relu, matmul, softmax


@pytest.mark.parametrize("scope", ["workspace", "local", "register"])
def test_a_buffer_of_one_thread_may_live_anywhere(scope):
    actual = body(scheduled(softmax(4, 9), f'set_scope("most", "{scope}")'))
    assert f"with alloc(f32[4] in {scope}) as most:" in actual


def test_it_refuses_an_argument():
    reason = "no buffer w is allocated; the allocated ones: none"
    assert_refused(matmul(6, 10, 5), 'set_scope("w", "local")', reason)


@pytest.mark.parametrize("scope", ["param", "constant"])
def test_it_refuses_the_scopes_of_arguments(scope):
    reason = f"most is not an argument, so it cannot be in scope {scope}"
    assert_refused(softmax(4, 9), f'set_scope("most", "{scope}")', reason)


@pytest.mark.parametrize("scope", ["local", "register"])
def test_it_refuses_to_hide_from_threads_what_they_share(scope):
    reason = "most is shared by the iterations of the parallel loop power_i"
    step, after = f'set_scope("most", "{scope}")', ('parallel("power_i")',)
    assert_refused(softmax(4, 9), step, reason, after=after)


def test_it_refuses_to_share_what_each_thread_has():
    after = ('compute_at("conv", "y_oc")', 'parallel("y_oc")')
    reason = "the threads of y_oc would share the workspace buffer conv"
    step = 'set_scope("conv", "workspace")'
    assert_refused(conv_bias_relu(3, 8, 6, block=4), step, reason, after=after)


def test_it_keeps_results():
    def arguments(dice):
        return dice.buffer(), dice.pick(["workspace", "local", "register"])

    assert_keeps_results("set_scope", arguments)
