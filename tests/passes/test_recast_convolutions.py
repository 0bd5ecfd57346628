"""Convolutions that see one point at a time become other operators, with the same results."""

from __future__ import annotations

import pytest
from graph_tools import SETTINGS, NetworkBuilder, assert_same_results

from farrier.ops.verify import verify
from farrier.passes import optimize, run_passes


def recast(graph):
    """The operators after the pass, in order."""
    return [node.op for node in recast_graph(graph).nodes]


def recast_graph(graph):
    """The graph after the pass; results are the same, after all passes too."""
    result = run_passes(graph, ["recast-convolutions"], SETTINGS)
    verify(result)
    assert_same_results(graph, result)
    assert_same_results(graph, optimize(graph, SETTINGS), tolerance=1e-4)
    return result


def upsampled(channels, kernel=(2, 2), **attrs):
    builder = NetworkBuilder(0)
    x = builder.add("Relu", builder.conv(builder.input(1, 3, 5, 7), 20))
    w = builder.weight(20, channels, *kernel)
    attrs = {"strides": (2, 2), **attrs}
    y = builder.add("ConvTranspose", x, w, builder.weight(channels), **attrs)
    return builder.graph(builder.add("Sigmoid", y))


@pytest.mark.parametrize("channels", [1, 3])
def test_upsampling_to_a_few_channels_is_a_convolution(channels):
    assert recast(upsampled(channels)) == ["Conv", "Relu", "Conv", "DepthToSpace", "Sigmoid"]


@pytest.mark.parametrize(
    ("channels", "attrs"),
    [
        (20, {}),
        (1, {"output_padding": (1, 1)}),
        (1, {"kernel": (1, 1), "strides": (2, 2)}),
    ],
)
def test_other_upsampling_stays(channels, attrs):
    assert "ConvTranspose" in recast(upsampled(channels, **attrs))


def grouped(channels, outputs, group, batch=1, kernel=1):
    builder = NetworkBuilder(1)
    x = builder.input(batch, channels, 5, 7)
    y = builder.add("Relu", builder.conv(x, outputs, kernel=kernel, group=group))
    z = builder.conv(y, outputs, kernel=1, group=group, bias=False)
    return builder.graph(builder.add("Relu", builder.add("Add", z, y)))


@pytest.mark.parametrize("batch", [1, 2])
def test_groups_of_odd_size_are_matrix_products(batch):
    nodes = [node for node in recast_graph(grouped(15, 9, 3, batch)).nodes if node.op != "Reshape"]
    # What follows a product is computed in its shape: only views stand between.
    assert [node.op for node in nodes] == ["MatMul", "Add", "Relu", "MatMul", "Add", "Relu"]
    assert {node.outputs[0].type.shape for node in nodes} == {(batch, 3, 3, 35)}


@pytest.mark.parametrize("shape", [(32, 32, 2), (6, 6, 6), (12, 12, 1)])
def test_whole_vectors_single_channels_and_dense_stay(shape):
    assert recast(grouped(*shape)).count("Conv") == 2


def test_windows_stay():
    assert recast(grouped(15, 9, 3, kernel=3)).count("Conv") == 1
