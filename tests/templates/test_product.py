"""Tests of kernels that are a product of two matrices, and of others."""

from __future__ import annotations

import pytest

from bench.tuning.tasks import Layer
from farrier.ir.types import DType
from farrier.targets import parse_target
from farrier.templates import Problem

TARGET = parse_target("x86-64-v4")


def problem_of(write):
    return Problem(Layer("layer", write).task(TARGET, 2).program, TARGET, 2, TARGET.machine(2))


def linear(rows, steps, columns, *after):
    def write(w):
        y = w.op("MatMul", w.input("x", (rows, steps)), w.normal((steps, columns), 1.0))
        for op in after:
            y = w.op(op, y)
        w.output(y, "y", (rows, columns))

    return write


@pytest.mark.parametrize("after", [(), ("Relu",), ("Relu", "Exp")])
def test_a_product_is_found_with_what_follows_it(after):
    product_found = problem_of(linear(7, 5, 48, *after)).product
    assert product_found is not None
    assert (product_found.rows, product_found.steps, product_found.columns) == (7, 5, 48)
    assert product_found.dtype is DType.F32
    assert product_found.has_constant_weights
    assert [product_found.x.shape, product_found.w.shape] == [(7, 5), (5, 48)]


@pytest.mark.parametrize("after", [(), ("Relu",), ("Relu", "Exp")])
def test_its_loops_are_there_and_pack_lays_its_weights_out(after):
    problem = problem_of(linear(7, 5, 48, *after))
    schedule = problem.schedule()
    problem.product.pack(schedule, 16)
    loops = problem.product.loops(schedule)
    extents = {
        name: schedule.extent(getattr(loops, name)) for name in loops._fields if name != "sums"
    }
    assert extents == {
        "rows": 7, "columns": 48, "zero_rows": 7, "zero_columns": 48,
        "sum_rows": 7, "sum_columns": 48, "steps": 5,
    }  # fmt: skip
    (weights,) = (
        param for param in schedule.function.params if param.name == problem.product.w.name
    )
    assert weights.layout.physical_shape(weights.shape) == (3, 5, 16)


def two_inputs(w):
    x, y = w.input("x", (7, 5)), w.input("y", (5, 48))
    w.output(w.op("MatMul", x, y), "z", (7, 48))


def test_weights_that_come_with_the_call_stay_as_they_lie():
    assert not problem_of(two_inputs).product.has_constant_weights


def softmax(w):
    w.output(w.op("Softmax", w.input("x", (7, 48))), "y", (7, 48))


def convolution(w):
    w.output(w.conv(w.input("x", (1, 16, 8, 8)), 16, 16, 3), "y", (1, 16, 8, 8))


def batched(w):
    x = w.input("x", (2, 7, 5))
    w.output(w.op("MatMul", x, w.input("y", (2, 5, 48))), "z", (2, 7, 48))


@pytest.mark.parametrize("write", [softmax, convolution, batched])
def test_what_is_no_product_of_two_matrices_is_none(write):
    assert problem_of(write).product is None
