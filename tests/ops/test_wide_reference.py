"""The reference in double: exact, and without the weights of a model in double at once."""

import tracemalloc

import numpy as np
import pytest

from farrier.frontends.onnx.importer import import_model
from farrier.ops import matmul, run_graph
from tests.ops.conftest import one_node_model


def graph_of(op, x, w, **attrs):
    return import_model(one_node_model(op, [x], {1: w}, 1, 17, attrs)).graph


@pytest.mark.parametrize("elements", [1, 400, 1 << 23])
@pytest.mark.parametrize(("op", "attrs"), [("MatMul", {}), ("Gemm", {}), ("Gemm", {"transB": 1})])
def test_weights_are_widened_a_block_at_a_time(monkeypatch, op, attrs, elements):
    monkeypatch.setattr(matmul, "_WIDENED", elements)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 40), (40, 70)))
    graph = graph_of(op, x, np.ascontiguousarray(w.T) if attrs else w, **attrs)
    (actual,) = run_graph(graph, {graph.inputs[0].name: x}, wide=True).values()
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, x.astype(np.float64) @ w.astype(np.float64), rtol=1e-12)


def test_rows_of_a_table_are_widened_and_not_the_table():
    table, rows = np.ones((4000, 500), np.float32), np.arange(3)
    proto = one_node_model("Gather", [None, rows], {0: table}, 1, 17, {})
    graph = import_model(proto).graph
    tracemalloc.start()
    (actual,) = run_graph(graph, {graph.inputs[0].name: rows}, wide=True).values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert actual.dtype == np.float64
    assert peak < table.nbytes / 10
