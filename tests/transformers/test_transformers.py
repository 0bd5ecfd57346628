"""Small transformers, whole, as native code: odd lengths, heads and batches, masks."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from bench import models
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from farrier.targets import host

MODELS = {
    "bert": models.build("bert_base", layers=2, width=96, heads=3, tokens=37, vocabulary=50),
    "bert, a batch": models.build(
        "bert_base", layers=1, width=44, heads=2, tokens=13, batch=2, vocabulary=50
    ),
    "vit": models.build("vit_b16", layers=2, width=48, heads=3, size=80, classes=11),
    "vit, a batch": models.build(
        "vit_b16", layers=1, width=34, heads=2, size=48, batch=3, classes=5
    ),
}
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def inputs_of(graph):
    rng = np.random.default_rng(5)
    arrays = {}
    for value in graph.inputs:
        shape = value.type.static_shape
        if value.type.dtype.is_float:
            arrays[value.name] = rng.standard_normal(shape, np.float32)
        else:  # These are tokens, types and masks.
            arrays[value.name] = rng.integers(0, 2, shape)
    return arrays


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_a_transformer_computes_the_reference(name, target):
    if int(target[-1]) > int(host().cpu[-1]):
        pytest.skip(f"this machine is no {target}")
    graph = import_model(MODELS[name], {}).graph
    arrays = inputs_of(graph)
    expected = run_graph(graph, arrays, wide=True)
    artifact = farrier.compile(MODELS[name], target=target, threads=2, verify=False)
    results = artifact.run({spec.name: arrays[v.name] for spec, v in inputs(artifact, graph)})
    for got, value in zip(results.values(), graph.outputs, strict=True):
        wanted = expected[value.name]
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        assert error < 2e-5


def inputs(artifact, graph):
    return zip(artifact.manifest.inputs, graph.inputs, strict=True)


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_nothing_moves_data_around_the_products(name):
    """In a layer stand four projections and an attention, two products of the network behind it
    and two normalizations."""
    artifact = farrier.compile(MODELS[name], threads=1, verify=False)
    calls = {kernel.name: kernel.calls for kernel in artifact.manifest.kernels}
    moved = sum(count for kernel, count in calls.items() if kernel.startswith("transpose"))
    assert moved == (1 if name == "vit" else 0)  # the patches, once
    products = sum(count for kernel, count in calls.items() if kernel.startswith("matmul"))
    assert products == 2 * 7 + 1
