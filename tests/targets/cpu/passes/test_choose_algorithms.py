"""The algorithm of a convolution: within the error that the user allows, as measured where
known."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from graph_tools import SETTINGS, NetworkBuilder

from farrier.ir.types import DType
from farrier.ops import lookup
from farrier.ops.filtering import ERRORS, FILTERINGS, Filtering
from farrier.ops.winograd import transformed
from farrier.options.precision import Precision
from farrier.passes.algorithm import Algorithm
from farrier.targets import parse_target
from farrier.targets.cpu.passes.choose_algorithms import choose_algorithms, layers
from farrier.targets.cpu.passes.lower_precision import lower_precision

BF16 = dataclasses.replace(
    SETTINGS,
    target=dataclasses.replace(parse_target("x86-64-v4"), features=("avx512_bf16",), cores=2),
    precision=Precision.BF16,
)


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
    [(1.0, [6, 4, 3, 0]), (3e-6, [4, 4, 3, 0]), (1e-6, [2, 2, 2, 0]), (0.0, [0] * 4)],
)
def test_an_algorithm_stays_within_the_error_allowed(max_error, tiles):
    settings = dataclasses.replace(SETTINGS, max_layer_error=max_error)
    assert _tiles(choose_algorithms(_net((96, 120), (64, 56), (256, 14)), settings)) == tiles


def test_threads_that_each_wait_for_all_weights_filter_less():
    """As measured on a Xeon of 16 cores: tiles pay for few channels and large images alone."""
    xeon = dataclasses.replace(SETTINGS.target, tune="sapphirerapids", cores=16)
    graph = _net((64, 56), (128, 28), (256, 14))
    filtered = {
        threads: [tile > 0 for tile in _tiles(choose_algorithms(graph, settings))[:3]]
        for threads in (1, 16)
        for settings in [dataclasses.replace(SETTINGS, target=xeon, threads=threads)]
    }
    assert filtered == {1: [True, True, True], 16: [True, True, False]}


def test_what_was_measured_wins_over_arithmetic_where_it_is_allowed():
    graph = _net((64, 56), (64, 56), (256, 14))
    same, also, other = layers(graph, SETTINGS)
    assert same.key == also.key != other.key
    fastest = {same.key: Algorithm.DIRECT, other.key: Algorithm.WINOGRAD4}
    settings = dataclasses.replace(SETTINGS, algorithms=fastest)
    assert _tiles(choose_algorithms(graph, settings)) == [0, 0, 4, 0]
    strict = dataclasses.replace(settings, max_layer_error=1e-6)
    assert _tiles(choose_algorithms(graph, strict)) == [0, 0, 2, 0]


def test_tiles_of_2_keep_bf16_and_larger_ones_have_f32_weights():
    lowered = lower_precision(_net((64, 56), (256, 14), (512, 7)), BF16)
    graph = choose_algorithms(lowered, BF16)
    assert _tiles(graph) == [4, 2, 0, 0]
    nodes = [node for node in graph.nodes if node.op in ("Conv", "WinogradConv")]
    assert all(node.inputs[0].type.dtype is DType.BF16 for node in nodes)
    weights = [node.inputs[1].type.dtype for node in nodes]
    assert weights == [DType.F32, DType.BF16, DType.BF16, DType.BF16]
    assert all(node.attr("accumulator") == "f32" for node in nodes)
    rounded = {layer.key for layer in layers(lowered, BF16)}
    assert not rounded & {layer.key for layer in layers(_net((64, 56)), BF16)}
    plain = dataclasses.replace(BF16, max_layer_error=0.0)
    assert _tiles(choose_algorithms(lowered, plain)) == [0] * 4


def test_sums_in_tile_registers_are_direct():
    features = ("amx_bf16", "amx_tile", "avx512_bf16")
    settings = dataclasses.replace(BF16, target=dataclasses.replace(BF16.target, features=features))
    lowered = lower_precision(_net((64, 56), (256, 14), (64, 53)), settings)
    assert _tiles(choose_algorithms(lowered, settings)) == [0] * 4


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("channels", [16, 64, 256])
def test_errors_of_bf16_stay_below_what_is_said_of_them(algorithm, channels):
    """Operands rounded, sums in f64, against the convolution of what was not rounded."""
    rng = np.random.default_rng(channels)
    x = np.maximum(rng.standard_normal((1, channels, 14, 14)), 0)
    w = rng.standard_normal((32, channels, 3, 3)) / 3
    pads = {"pads": (1, 1, 1, 1)}
    (exact,) = lookup("Conv").reference([x, w], pads)
    narrow, kind = DType.BF16.numpy, algorithm.weights(DType.BF16).numpy
    if algorithm.tile:
        attrs = {**pads, "tile": algorithm.tile, "accumulator": "f32"}
        u = transformed(w, Filtering(1, algorithm.tile)).astype(kind)
        (actual,) = lookup("WinogradConv").reference([x.astype(narrow), u], attrs)
    else:
        operands = [x.astype(narrow).astype(np.float64), w.astype(kind).astype(np.float64)]
        (actual,) = lookup("Conv").reference(operands, pads)
    error = np.abs(actual - exact).max() / np.abs(exact).max()
    stated = algorithm.error_of(DType.BF16)
    assert stated / 5 < error < stated


def test_strides_of_two_have_tiles_of_their_own():
    net = NetworkBuilder(0)
    outputs = []
    for channels, extent, stride in ((128, 56, 2), (256, 28, 2), (512, 14, 2), (64, 28, 3)):
        x, w = net.input(1, channels, extent, extent), net.weight(channels, channels, 3, 3)
        outputs.append(net.add("Conv", x, w, pads=(1, 1, 1, 1), strides=(stride, stride)))
    graph = net.graph(*outputs)
    allowed = [layer.allowed for layer in layers(graph, SETTINGS)]
    assert len(allowed) == 3
    assert Algorithm.WINOGRAD6 not in allowed[0]
    assert _tiles(choose_algorithms(graph, SETTINGS)) == [4, 2, 0, 0]


@pytest.mark.parametrize("filtering", FILTERINGS, ids=str)
@pytest.mark.parametrize("channels", [16, 64, 256])
def test_errors_stay_below_what_is_said_of_them(filtering, channels):
    """In f32 throughout, as kernels compute, against the direct sum in f64."""
    rng = np.random.default_rng(channels)
    tile, stride, points = filtering.tile, filtering.stride, filtering.points
    reach = stride * tile + points
    x = rng.standard_normal((1, channels, reach, reach)).astype(np.float32)
    w = (rng.standard_normal((32, channels, 3, 3)) / 3).astype(np.float32)
    arrays = [x.astype(np.float64), w.astype(np.float64)]
    (exact,) = lookup("Conv").reference(arrays, {"strides": (stride, stride)})
    u = transformed(w, filtering)
    actual = np.zeros((1, 32, 2 * tile, 2 * tile), np.float32)
    for top, left in itertools.product((0, tile), (0, tile)):
        down, right = stride * top, stride * left
        d = x[0, :, down : down + points, right : right + points]
        for axis in (1, 2):
            d = np.stack(filtering.input_sums(list(np.moveaxis(d, axis, 0))), axis)
        m = np.zeros((points, points, 32), np.float32)
        for channel in range(channels):
            m += d[channel, :, :, None] * u[:, :, :, channel]
        for axis in (0, 1):
            m = np.stack(filtering.output_sums(list(np.moveaxis(m, axis, 0))), axis)
        actual[0, :, top : top + tile, left : left + tile] = m.transpose(2, 0, 1)
    assert actual.dtype == np.float32
    exact = exact[:, :, : 2 * tile, : 2 * tile]
    assert np.abs(actual - exact).max() < ERRORS[tile] * np.abs(exact).max()
