"""Traces as text, and texts that are not steps of a trace."""

from __future__ import annotations

import pytest

from farrier.errors import CompilerError
from farrier.lower.loops import to_loops
from farrier.schedule import Schedule, Trace
from farrier.schedule.primitives import PRIMITIVES
from tests.schedule.programs import matmul


@pytest.mark.parametrize("text", ["split(", "x = 3", "split(1.5)", "split(a)", "split(k=1)"])
def test_text_that_is_no_trace_is_refused(text):
    with pytest.raises(CompilerError, match="not a schedule trace"):
        Trace.parse(text)


def test_an_unknown_primitive_is_refused():
    with pytest.raises(CompilerError, match="no schedule primitive 'shuffle'"):
        Schedule(to_loops(matmul(6, 10, 5))).apply("shuffle", "y_m")


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_every_primitive_is_a_method_that_records_its_step(name):
    assert callable(getattr(Schedule, name))


def test_text_reads_back():
    text = (
        'split("y_m", 7, "o", "p")\n'
        'reorder(("y_k", "o"))\n'
        'transform_layout("w", Layout(((0, 32, 0), (1, 1, 0), (0, 1, 32)), ((1, 1), (0, 0))))\n'
        'cut("y_k", -1, "r")\n'
    )
    assert str(Trace.parse(text)) == text
