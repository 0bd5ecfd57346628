"""Primitive cache_read: a copy of what an iteration reads."""

from __future__ import annotations

import pytest

from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul, softmax


def test_reads_under_a_condition_guard_the_copy():
    source = """
@function
def shift(a: f32[10], b: f32[12]):
    for o in serial(3):
        for i in serial(4):
            if 4 * o + i < 10:
                b[4 * o + i] = a[4 * o + i]
"""
    assert body(scheduled(source, 'cache_read("a", "o", "c")')) == text("""
        for o in serial(3):
            with alloc(f32[4] in local) as c:
                for c_0 in serial(4):
                    if o * 4 + c_0 < 10:
                        c[c_0] = a[o * 4 + c_0]
                for i in serial(4):
                    if 4 * o + i < 10:
                        b[4 * o + i] = c[i]
    """)


def test_a_condition_on_less_than_memory_guards_the_copy():
    """Nothing is read beyond it, so a producer that is computed there makes no more."""
    source = """
@function
def tail(a: f32[40], b: f32[20]):
    for o in serial(2):
        for t in serial(4):
            for i in serial(3):
                if 3 * t + i < 10:
                    b[10 * o + 3 * t + i] = a[20 * o + 3 * t + i]
"""
    assert body(scheduled(source, 'cache_read("a", "t", "c")')) == text("""
        for o in serial(2):
            for t in serial(4):
                with alloc(f32[3] in local) as c:
                    for c_0 in serial(3):
                        if t * 3 + c_0 < 10:
                            c[c_0] = a[o * 20 + t * 3 + c_0]
                    for i in serial(3):
                        if 3 * t + i < 10:
                            b[10 * o + 3 * t + i] = c[i]
    """)


def test_a_copy_that_threads_share_lies_in_the_workspace():
    actual = body(scheduled(matmul(6, 10, 5), 'parallel("y_n")', 'cache_read("w", "y_m", "panel")'))
    assert "with alloc(f32[5, 10] in workspace) as panel:" in actual


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('cache_read("w", "q", "c")', "there is no loop q; the loops are y_init_m"),
        ('cache_read("w", "y_init_m", "c")', "nothing within y_init_m reads w"),
        ('cache_read("y", "y_m", "c")', "y_m writes y, so a copy would grow old"),
        ('cache_read("w", "y_m", "x")', "there is a buffer x already"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(matmul(6, 10, 5), step, reason)


def test_it_refuses_a_copy_that_would_grow_old():
    step, reason = 'cache_read("most", "most_i", "copy")', "most_i writes most"
    assert_refused(softmax(4, 9), step, reason)


def test_it_refuses_loops_of_a_name_that_is_taken():
    after = ('split("y_m", 2, "c_0", "p")',)
    assert_refused(matmul(6, 10, 5), 'cache_read("w", "y_n", "c")', "a loop c_0", after=after)


def test_it_keeps_results():
    def arguments(dice):
        return dice.any_buffer(), dice.loop(), "c"

    assert_keeps_results("cache_read", arguments, least=15)
