"""LayerNormalization in the form that flax writes, and what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest
from graph_tools import NetworkBuilder, assert_same_results

from farrier.passes.simplify import simplify

WIDTH = 6


def _flax(net, x, *, square=None, share=1 / WIDTH, axis=2):
    def mean(value):
        total = net.add("ReduceSum", value, net.array(np.array([axis], np.int64)), keepdims=0)
        return net.add("Mul", total, net.array(np.array(share, np.float32)))

    def column(value):
        return net.add("Reshape", value, net.array(np.array([2, 3, 1], np.int64)))

    average = mean(x)
    spread = net.add("Sub", mean(net.add("Mul", x, x)), net.add("Mul", average, square or average))
    variance = net.add("Max", spread, net.array(np.array(0.0, np.float32)))
    shifted = net.add("Add", column(variance), net.array(np.array(1e-3, np.float32)))
    factor = net.add("Mul", net.add("Reciprocal", net.add("Sqrt", shifted)), net.weight(WIDTH))
    return net.add("Mul", net.add("Sub", x, column(average)), factor)


def _one_pass(net, x):
    return _flax(net, x)


def _other_square(net, x):
    return _flax(net, x, square=net.input(2, 3))


def _other_share(net, x):
    return _flax(net, x, share=0.25)


@pytest.mark.parametrize(
    ("build", "is_norm"), [(_one_pass, True), (_other_square, False), (_other_share, False)]
)
def test_a_layer_normalization_of_flax_is_recovered(build, is_norm):
    net = NetworkBuilder(1)
    graph = net.graph(build(net, net.input(2, 3, WIDTH)))
    result = simplify(graph)
    assert ("LayerNormalization" in [node.op for node in result.nodes]) == is_norm
    if is_norm:
        assert_same_results(graph, result, tolerance=1e-4)
