"""Constants that chains merge into are rounded once."""

from __future__ import annotations

import numpy as np
from graph_tools import NetworkBuilder
from hypothesis import assume, given
from hypothesis import strategies as st

from farrier.passes.simplify import simplify

factors = st.floats(2.0, 100.0, width=32)  # none is neutral


def merged(*steps):
    """The one constant that is left of a chain of operators by constants, in f32."""
    net = NetworkBuilder(0)
    x = net.input(2, 3)
    for op, constant in steps:
        x = net.add(op, x, net.array(np.array(constant, np.float32)))
    graph = simplify(net.graph(x))
    node = graph.nodes[-1]  # Nothing reads the nodes before it.
    assert node.inputs[0].name == graph.inputs[0].name
    constants = {constant.value.name: constant.data for constant in graph.constants}
    return node.op, float(constants[node.inputs[1].name])


@given(factors, factors)
def test_what_is_divided_and_multiplied_is_multiplied_by_the_nearest_quotient(divisor, factor):
    assume(np.float32(factor / divisor) != 1)  # Nothing is left of a factor of 1.
    op, actual = merged(("Div", divisor), ("Mul", factor))
    assert (op, actual) == ("Mul", np.float32(factor / divisor))


@given(st.lists(factors, min_size=2, max_size=5))
def test_a_chain_of_any_length_is_rounded_once(values):
    op, actual = merged(*(("Mul", value) for value in values))
    assert (op, actual) == ("Mul", np.float32(np.prod(np.array(values, np.float64))))
    op, actual = merged(*(("Add", value) for value in values))
    assert (op, actual) == ("Add", np.float32(np.sum(np.array(values, np.float64))))
