"""The convolutions of an inverted bottleneck that one kernel computes, by the target's features."""

from __future__ import annotations

import dataclasses

import pytest
from graph_tools import SETTINGS, NetworkBuilder

from farrier.options.precision import Precision
from farrier.passes import optimize

TILES = ("amx_bf16", "amx_tile", "avx512_bf16")


@pytest.mark.parametrize(
    ("precision", "features", "convolutions"),
    [
        (Precision.F32, TILES, [3]),
        (Precision.BF16, ("avx512_bf16",), [3]),
        (Precision.BF16, TILES, [1, 1, 1]),
    ],
)
def test_products_in_tile_registers_have_kernels_of_their_own(precision, features, convolutions):
    net = NetworkBuilder(0)
    expanded = net.add("Conv", net.input(1, 16, 56, 56), net.weight(96, 16, 1, 1))
    filtered = net.add("Conv", expanded, net.weight(96, 1, 3, 3), pads=(1, 1, 1, 1), group=96)
    graph = net.graph(net.add("Conv", filtered, net.weight(32, 96, 1, 1)))
    target = dataclasses.replace(SETTINGS.target, features=features)
    optimized = optimize(graph, dataclasses.replace(SETTINGS, target=target, precision=precision))
    kernels = [region.nodes for node in optimized.nodes for region in node.regions]
    kernels += [(node,) for node in optimized.nodes]
    counts = [sum(node.op == "Conv" for node in nodes) for nodes in kernels]
    assert [count for count in counts if count] == convolutions
