"""Tests of the stages of an epilogue that are kept as values: those read at several places."""

from __future__ import annotations

from farrier.ir.parser import parse_ir
from farrier.space.operations import reads_of

_SQUARE = """@program
def square(x: f32[3]):
    a: f32[3]
    y: f32[3]
    for i in axes(3):
        a[i] = exp(x[i])
    for i in axes(3):
        y[i] = a[i] * a[i] + x[i]
    return y
"""


def test_a_read_at_two_places_counts_twice_though_it_is_one_node():
    program = parse_ir(_SQUARE)
    product = program.stages[1].body.left
    assert product.left is product.right
    assert reads_of("a", program.stages) == 2
    assert reads_of("x", program.stages) == 2
