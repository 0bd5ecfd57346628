"""The loops that two accesses must agree on, where axes are walked as one and then split again."""

from __future__ import annotations

import math

import pytest

from farrier.ir import expr as e
from farrier.ir.affine import Simplifier
from farrier.ir.expr import Var
from farrier.schedule.dependence import agreed

SHAPES = [(3, 8, 34, 2), (5, 5, 4), (2, 15, 11, 16), (4, 5, 2), (24, 15, 2), (42, 3, 4), (7, 13)]


def digits(whole, shape):
    """The indices of element `whole` in row-major order, outermost first."""
    indices = []
    for extent in reversed(shape[1:]):
        indices.append(e.mod(whole, extent))
        whole = e.floordiv(whole, extent)
    return (whole, *reversed(indices))


def agreement(indices, ranges):
    simplifier = Simplifier(ranges)
    element = tuple(map(simplifier.linear, indices))
    return agreed(simplifier, element, element, frozenset())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("lanes", "vectors"), [(4, 4), (8, 2), (16, 1), (16, 4)])
def test_every_element_is_written_by_one_lane(shape, lanes, vectors):
    chunks = -(-math.prod(shape) // (lanes * vectors))
    ranges = {"c": chunks, "v": vectors, "l": lanes}
    inner = e.add(e.mul(Var("v"), lanes), Var("l"))
    whole = e.add(e.mul(Var("c"), lanes * vectors), inner)
    several = {name for name, extent in ranges.items() if extent > 1}
    assert agreement(digits(whole, shape), ranges) >= several


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_missing_digit_leaves_iterations_that_conflict(lost):
    ranges = {"c": 4, "l": 16}
    whole = e.add(e.mul(Var("c"), 16), Var("l"))
    indices = list(digits(whole, (4, 8, 2)))
    del indices[lost]
    assert not agreement(tuple(indices), ranges) >= {"c", "l"}
