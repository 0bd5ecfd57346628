"""Random networks go through all passes: results stay, no node is lost or computed twice."""

from __future__ import annotations

import numpy as np
from graph_tools import (
    SETTINGS,
    NetworkBuilder,
    assert_same_results,
    computing_nodes,
    image_networks,
    random_inputs,
    run_in_memory,
)
from hypothesis import given, settings

from farrier.ops import Kind, lookup, run_graph
from farrier.ops.verify import verify
from farrier.partition import extract_tasks
from farrier.partition.plan_memory import plan_memory
from farrier.passes import optimize, run_passes

_PATIENT = settings(
    deadline=None,
    max_examples=60,
)


@_PATIENT
@given(image_networks)
def test_optimization_keeps_results(graph):
    verify(graph)
    result = optimize(graph, SETTINGS)
    assert_same_results(graph, result, tolerance=1e-4)
    assert [v.name for v in result.outputs] == [v.name for v in graph.outputs]
    for node in result.nodes:
        assert node.op == "Fused" or lookup(node.op).kind is Kind.VIEW


@_PATIENT
@given(image_networks)
def test_layouts_never_change_results(graph):
    result = run_passes(graph, ["assign-layouts"], SETTINGS)
    verify(result)
    assert_same_results(graph, result, tolerance=0)
    for value in (*result.inputs, *result.outputs):
        assert value.type.layout is None


@_PATIENT
@given(image_networks)
def test_fusion_neither_drops_nor_repeats_nodes(graph):
    graph = run_passes(graph, ["eliminate-dead-code"], SETTINGS)
    result = run_passes(graph, ["fuse"], SETTINGS)
    verify(result)
    copies = [v.name for v in result.outputs if v not in graph.outputs]
    actual = [name for name in computing_nodes(result) if name not in copies]
    renamed = {name.removesuffix("_copy") for name in actual}
    assert renamed == set(computing_nodes(graph))
    assert len(actual) - len(computing_nodes(graph)) == sum(
        name.endswith("_copy") for name in actual
    )
    assert_same_results(graph, result, tolerance=0)


@_PATIENT
@given(image_networks)
def test_a_kernel_has_one_contraction_or_reduction(graph):
    for node in run_passes(graph, ["fuse"], SETTINGS).nodes:
        if node.op == "Fused":
            kinds = [lookup(inner.op).kind for inner in node.regions[0].nodes]
            assert sum(kind in (Kind.CONTRACTION, Kind.REDUCTION) for kind in kinds) <= 1


@_PATIENT
@given(image_networks)
def test_optimized_networks_run_in_their_planned_memory(graph):
    """Every value is written to and read from bytes at its place alone."""
    result = optimize(graph, SETTINGS)
    inputs = random_inputs(graph)
    actual = run_in_memory(result, plan_memory(extract_tasks(result)[1]), inputs)
    for name, expected in run_graph(result, inputs).items():
        np.testing.assert_array_equal(actual[name], expected)


def test_a_residual_network():
    """The whole of a residual block is two kernels, and no relayout stands between blocks."""
    net = NetworkBuilder(0)
    x = net.input(1, 3, 12, 12)
    stem = net.add("Relu", net.batch_norm(net.conv(x, 32, bias=False)))
    for _ in range(2):
        inner = net.add("Relu", net.batch_norm(net.conv(stem, 32, bias=False)))
        sum_ = net.add("Add", net.batch_norm(net.conv(inner, 32, bias=False)), stem)
        stem = net.add("Relu", sum_)
    pooled = net.add("Flatten", net.add("GlobalAveragePool", stem), axis=1)
    y = net.add("Gemm", pooled, net.weight(10, 32), net.weight(10), transB=1)
    graph = net.graph(y)
    result = optimize(graph, SETTINGS)
    assert_same_results(graph, result, tolerance=1e-4)
    assert [node.regions[0].name if node.regions else node.op for node in result.nodes] == [
        "conv_relu",
        "winogradconv_relu",
        "winogradconv_add_relu",
        "winogradconv_relu",
        "winogradconv_add_relu",
        "globalaveragepool",
        "Reshape",
        "matmul_add",
    ]


def test_an_attention_layer():
    net = NetworkBuilder(1)
    x, mask = net.input(1, 8, 32), net.input(1, 1, 1, 8)
    heads = []
    for _ in range(3):
        rows = net.add("Add", net.add("MatMul", x, net.weight(32, 32)), net.weight(32))
        shape = net.array(np.array([1, 8, 4, 8], np.int64))
        heads.append(net.add("Transpose", net.add("Reshape", rows, shape), perm=(0, 2, 1, 3)))
    q, k, v = heads
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=(0, 1, 3, 2)))
    scaled = net.add("Div", scores, net.array(np.array(8.0, np.float32)))
    weights = net.add("Softmax", net.add("Add", scaled, mask), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", weights, v), perm=(0, 2, 1, 3))
    flat = net.add("Reshape", mixed, net.array(np.array([1, 8, 32], np.int64)))
    projected = net.add("Add", net.add("MatMul", flat, net.weight(32, 32)), net.weight(32))
    y = net.add("LayerNormalization", net.add("Add", projected, x), net.weight(32), net.weight(32))
    graph = net.graph(y)
    result = optimize(graph, SETTINGS)
    assert_same_results(graph, result, tolerance=1e-4)
    names = [node.regions[0].name for node in result.nodes if node.op == "Fused"]
    assert names.count("matmul_mul_add_softmax_matmul") == 1
    assert names.count("matmul_add_add") == 1  # The projection, with bias and residual.
    assert len(names) == 3 + 1 + 1 + 1  # Projections, attention, normalization: no transpose.
    inputs = random_inputs(graph)
    actual = run_in_memory(result, plan_memory(extract_tasks(result)[1]), inputs)
    np.testing.assert_allclose(actual[y.name], run_graph(result, inputs)[y.name], rtol=1e-5)
