"""How a convolution is computed: within the error that the user allows, as measured where known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graph_tools import SETTINGS, NetworkBuilder

from farrier.ops import lookup
from farrier.passes.algorithm import Algorithm
from farrier.passes.choose_algorithms import choose_algorithms, layers


def _net(*sizes):
    """Convolutions of 3x3 windows with (channels, extent) as given, and one of 1x1."""
    net = NetworkBuilder(0)
    outputs = []
    for channels, extent in sizes:
        x = net.input(1, channels, extent, extent)
        w = net.weight(channels, channels, 3, 3)
        outputs.append(net.add("Conv", x, w, pads=(1, 1, 1, 1)))
    outputs.append(net.add("Conv", net.input(1, 32, 5, 5), net.weight(32, 32, 1, 1)))
    return net.graph(*outputs)


def _tiles(graph):
    nodes = [node for node in graph.nodes if node.op in ("Conv", "WinogradConv")]
    return [node.attr("tile", 0) for node in nodes]


@pytest.mark.parametrize(
    ("max_error", "tiles"),
    [(1.0, [6, 4, 2, 0]), (3e-6, [4, 4, 2, 0]), (1e-6, [2, 2, 2, 0]), (0.0, [0] * 4)],
)
def test_an_algorithm_stays_within_the_error_allowed(max_error, tiles):
    settings = dataclasses.replace(SETTINGS, max_layer_error=max_error)
    assert _tiles(choose_algorithms(_net((96, 120), (64, 56), (256, 14)), settings)) == tiles


def test_what_was_measured_wins_over_arithmetic_where_it_is_allowed():
    graph = _net((64, 56), (64, 56), (256, 14))
    same, also, other = layers(graph, SETTINGS)
    assert same.key == also.key != other.key
    known = {same.key: Algorithm.DIRECT, other.key: Algorithm.WINOGRAD4}
    settings = dataclasses.replace(SETTINGS, algorithms=known)
    assert _tiles(choose_algorithms(graph, settings)) == [0, 0, 4, 0]
    strict = dataclasses.replace(settings, max_layer_error=1e-6)
    assert _tiles(choose_algorithms(graph, strict)) == [0, 0, 2, 0]


@pytest.mark.parametrize("algorithm", [a for a in Algorithm if a.tile])
@pytest.mark.parametrize("channels", [16, 64, 256])
def test_errors_stay_below_what_is_said_of_them(algorithm, channels):
    """In f32 throughout, as kernels compute, against the direct sum in f64."""
    from farrier.ops.winograd import input_sums, output_sums, transformed

    rng = np.random.default_rng(channels)
    tile, extent = algorithm.tile, 2 * algorithm.tile
    x = rng.standard_normal((1, channels, extent + 2, extent + 2)).astype(np.float32)
    w = (rng.standard_normal((32, channels, 3, 3)) / 3).astype(np.float32)
    (exact,) = lookup("Conv").reference([x.astype(np.float64), w.astype(np.float64)], {})
    u = transformed(w, tile)
    found = np.zeros(exact.shape, np.float32)
    for top in range(0, extent, tile):
        for left in range(0, extent, tile):
            d = x[0, :, top : top + tile + 2, left : left + tile + 2]
            for axis in (1, 2):
                d = np.stack(input_sums(tile, list(np.moveaxis(d, axis, 0))), axis)
            m = np.zeros((tile + 2, tile + 2, 32), np.float32)
            for channel in range(channels):
                m += d[channel, :, :, None] * u[:, :, :, channel]
            for axis in (0, 1):
                m = np.stack(output_sums(tile, list(np.moveaxis(m, axis, 0))), axis)
            found[0, :, top : top + tile, left : left + tile] = m.transpose(2, 0, 1)
    assert found.dtype == np.float32
    assert np.abs(found - exact).max() < algorithm.error * np.abs(exact).max()
