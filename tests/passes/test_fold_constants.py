"""Operators whose results are much larger than the model stay unfolded."""

from __future__ import annotations

import numpy as np
from graph_tools import NetworkBuilder

from farrier.passes.fold_constants import MAX_BYTES, fold_constants


def test_a_bomb_is_not_folded():
    net = NetworkBuilder(0)
    huge = MAX_BYTES // 4 + 1
    element = net.array(np.ones(1, np.float32))
    graph = net.graph(net.add("Expand", element, net.array(np.array([huge], np.int64))))
    assert fold_constants(graph).nodes == graph.nodes


def test_large_weights_are_folded():
    net = NetworkBuilder(0)
    weight = net.array(np.zeros((MAX_BYTES // 4 + 8, 1), np.float32))
    graph = net.graph(net.add("Transpose", weight, perm=(1, 0)))
    assert fold_constants(graph).nodes == ()
