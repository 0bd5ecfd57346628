"""Random numbers: their distributions, and that compiled code draws those of the reference."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

SHAPE = (3, 41, 163)


def drawn(op, inputs=None, **attrs):
    """The outputs of one node by compiled code on one thread and on two, which must be those of the
    reference."""
    named = inputs or {}
    node = helper.make_node(op, list(named), ["y"], "node", **attrs)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in named.items()
    ]
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")], [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    imported = import_model(model.SerializeToString()).graph
    feeds = {v.name: a for v, a in zip(imported.inputs, named.values(), strict=True)}
    (reference,) = run_graph(imported, feeds).values()
    for threads in (1, 2):
        artifact = farrier.compile(model, verify=False, threads=threads)
        for _ in range(2):
            (actual,) = artifact.run(named).values()
            assert actual.dtype == reference.dtype
            np.testing.assert_allclose(actual, reference, rtol=1e-4, atol=1e-5)
    return reference


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_uniform_numbers_fill_the_interval_evenly(dtype):
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    y = drawn("RandomUniform", shape=SHAPE, dtype=code, low=-1.0, high=3.0, seed=5.0)
    assert y.dtype == dtype
    counts, _ = np.histogram(y, 16, (-1, 3))
    assert counts.sum() == y.size
    assert np.abs(counts / y.size - 1 / 16).max() < 0.006


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_have_the_moments_asked_for(dtype):
    x = np.zeros(SHAPE, dtype)
    y = drawn("RandomNormalLike", {"x": x}, mean=2.0, scale=0.5, seed=1.0)
    z = (y - 2) / 0.5
    moments = [float((z**k).mean()) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.12)
    assert np.isfinite(y).all()


def test_seeds_and_places_give_independent_numbers():
    first, second = (drawn("RandomUniform", shape=[9000], seed=float(s)) for s in (1, 2))
    for a, b in ((first, second), (first[1:], first[:-1]), (first[64:], first[:-64])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.04


def test_without_a_seed_the_node_s_name_is_one():
    np.testing.assert_array_equal(
        drawn("RandomUniform", shape=[50]), drawn("RandomUniform", shape=[50])
    )


def test_bernoulli():
    chances = np.linspace(0, 1, 21).astype(np.float32)[:, None].repeat(3000, 1)
    y = drawn("Bernoulli", {"x": chances}, seed=3.0)
    assert set(np.unique(y)) == {0.0, 1.0}
    np.testing.assert_allclose(y.mean(1), chances[:, 0], atol=0.04)
    assert y[0].max() == 0
    assert y[-1].min() == 1


def test_multinomial():
    chances = np.array([[0.5, 0.0, 0.2, 0.3], [0.1, 0.1, 0.8, 0.0]])
    with np.errstate(divide="ignore"):
        logits = np.log(chances).astype(np.float32)
    y = drawn("Multinomial", {"x": logits}, sample_size=4000, seed=2.0)
    assert y.dtype == np.int32
    for row, wanted in zip(y, chances, strict=True):
        counts = np.bincount(row, minlength=4) / row.size
        np.testing.assert_allclose(counts, wanted, atol=0.03)


def test_dropout_that_trains():
    x = np.ones((50, 100), np.float32)
    inputs = {"x": x}
    node = [
        helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"], seed=4),
    ]
    infos = [helper.make_tensor_value_info("x", 1, x.shape)]
    weights = [
        numpy_helper.from_array(np.array(0.25, np.float32), "r"),
        numpy_helper.from_array(np.array(True), "t"),
    ]
    results = [onnx.ValueInfoProto(name=name) for name in ("y", "mask")]
    graph = helper.make_graph(node, "g", infos, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    actual = farrier.compile(model, verify=False, threads=1).run(inputs)
    assert abs(actual["mask"].mean() - 0.75) < 0.03
    np.testing.assert_allclose(actual["y"], actual["mask"] / 0.75, rtol=1e-6)
