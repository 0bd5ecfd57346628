"""Primitive split_evenly: chunks of one size for any extent."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.loop import For
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.verify_kernel import verify_function
from farrier.schedule import Schedule, Trace, replay
from tests.ir.bind import bind
from tests.lowering import finalize
from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text

_COPY = """
@function(n=dim(0, 300, 100))
def copied(x: f32[n], y: f32[n]):
    for i in serial(n):
        y[i] = x[i] + 1.0
"""
_COPY_OF_100 = """
@function
def copied(x: f32[100], y: f32[100]):
    for i in serial(100):
        y[i] = x[i] + 1.0
"""


@pytest.mark.parametrize("n", [0, 1, 5, 47, 48, 49, 97, 300])
def test_even_chunks_of_a_loop_of_any_extent(n):
    """Multiples of 4 iterations, 24 at most, in pairs of chunks: the last may be shorter."""
    schedule = Schedule(parse_ir(_COPY))
    schedule.split_evenly("i", 2, 24, 4, "chunk", "in_chunk")
    function = schedule.function
    assert parse_ir(print_ir(function)) == function
    assert replay(Trace.parse(str(schedule.trace)), parse_ir(_COPY)) == function
    verify_function(function)
    (symbol,) = function.dims
    bound = bind(function, {symbol: n})
    chunk, inner = (s for s in walk_stmts(bound.body) if isinstance(s, For))
    assert inner.extent % 4 == 0
    assert inner.extent <= 24
    assert chunk.extent * inner.extent >= n > (chunk.extent - 1) * inner.extent - (n == 0)
    if n >= 48:
        assert chunk.extent >= -(-n // 24)
    x = np.arange(float(n))
    (y,) = run_loops(bind(finalize(function), {symbol: n}), {"x": x}).values()
    np.testing.assert_array_equal(y, x + 1)


def test_a_number_is_split_by_a_factor():
    """A sixth of 100, in steps of 4, is 20: five chunks are enough, and the last is whole."""
    assert body(scheduled(_COPY_OF_100, 'split_evenly("i", 2, 24, 4, "o", "p")')) == text("""
        for o in serial(5):
            for p in serial(20):
                y[o * 20 + p] = x[o * 20 + p] + 1.0
    """)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('split_evenly("q", 2, 24, 4, "o", "p")', "no loop q; the loops are i"),
        ('split_evenly("i", 0, 24, 4, "o", "p")', "0 parts of i, of 24 iterations at most, 4 at"),
        ('split_evenly("i", 2, 25, 4, "o", "p")', "2 parts of i, of 25 iterations at most, 4 at"),
        ('split_evenly("i", 2, 24, 0, "o", "p")', "2 parts of i, of 24 iterations at most, 0 at"),
        ('split_evenly("i", 2, 24, 4, "i", "p")', "there is a loop i already"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(_COPY, step, reason)


def test_it_refuses_a_loop_that_has_a_kind():
    step = 'split_evenly("i", 2, 24, 4, "o", "p")'
    assert_refused(_COPY, step, "i is parallel already", after=('parallel("i")',))


def test_it_keeps_results():
    def arguments(dice):
        step = dice.number(1, 3)
        return dice.loop(), dice.number(1, 3), step * dice.number(1, 3), step, "o", "p"

    assert_keeps_results("split_evenly", arguments)
