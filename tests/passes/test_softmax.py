"""Softmax is recovered from its primitives, and from nothing that only looks like it."""

from __future__ import annotations

import numpy as np
import pytest
from graph_tools import NetworkBuilder, assert_same_results

from farrier.passes.simplify import simplify


def _ints(net, *values):
    return net.array(np.array(values, np.int64))


def _kept(net, x):
    """The form of numpy: reductions keep their axis."""
    exp = net.add("Exp", net.add("Sub", x, net.add("ReduceMax", x, _ints(net, -1), keepdims=1)))
    return net.add("Div", exp, net.add("ReduceSum", exp, _ints(net, 2), keepdims=1))


def _of_jax(net, x):
    """The form of JAX: axes are put back by views, and the maximum is taken with -inf."""
    whole = net.add("Reshape", x, _ints(net, 1, 2, 3, 5))
    greatest = net.add("ReduceMax", x, _ints(net, 2), keepdims=0)
    bounded = net.add("Max", net.array(np.array([[-np.inf]], np.float32)), greatest)
    column = net.add("Reshape", bounded, _ints(net, 1, 2, 3, 1))
    exp = net.add("Exp", net.add("Sub", whole, column))
    total = net.add("ReduceSum", exp, _ints(net, 3), keepdims=0)
    return net.add("Div", exp, net.add("Reshape", total, _ints(net, 1, 2, 3, 1)))


def _other_axis(net, x):
    exp = net.add("Exp", net.add("Sub", x, net.add("ReduceMax", x, _ints(net, -1), keepdims=1)))
    return net.add("Div", exp, net.add("ReduceSum", exp, _ints(net, 1), keepdims=1))


def _other_maximum(net, x):
    greatest = net.add("ReduceMax", net.add("Neg", x), _ints(net, -1), keepdims=1)
    exp = net.add("Exp", net.add("Sub", x, greatest))
    return net.add("Div", exp, net.add("ReduceSum", exp, _ints(net, -1), keepdims=1))


def _bounded_maximum(net, x):
    greatest = net.add("ReduceMax", x, _ints(net, -1), keepdims=1)
    bounded = net.add("Max", greatest, net.array(np.array(0.5, np.float32)))
    exp = net.add("Exp", net.add("Sub", x, bounded))
    return net.add("Div", exp, net.add("ReduceSum", exp, _ints(net, -1), keepdims=1))


def _other_rows(net, x):
    """The rows of the sum are not those of the powers: a view has shorter ones."""
    whole = net.add("Reshape", x, _ints(net, 2, 5, 3))
    greatest = net.add("ReduceMax", whole, _ints(net, -1), keepdims=0)
    column = net.add(
        "Reshape",
        net.add("Slice", greatest, _ints(net, 0), _ints(net, 3), _ints(net, 1)),
        _ints(net, 2, 3, 1),
    )
    exp = net.add("Exp", net.add("Sub", x, column))
    return net.add("Div", exp, net.add("ReduceSum", exp, _ints(net, -1), keepdims=1))


@pytest.mark.parametrize(
    ("build", "is_softmax"),
    [
        (_kept, True),
        (_of_jax, True),
        (_other_axis, False),
        (_other_maximum, False),
        (_bounded_maximum, False),
        (_other_rows, False),
    ],
)
def test_a_softmax_is_recovered(build, is_softmax):
    net = NetworkBuilder(1)
    graph = net.graph(build(net, net.input(2, 3, 5)))
    result = simplify(graph)
    assert ("Softmax" in [node.op for node in result.nodes]) == is_softmax
    assert_same_results(graph, result, tolerance=1e-6)
