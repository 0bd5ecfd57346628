"""Whole models: the generators, and ONNX's light models, imported and run against ONNX Runtime."""

from __future__ import annotations

import collections
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.models import NAMES, build
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

SMALL = {
    "resnet18": {"size": 64, "width": 16, "classes": 11},
    "resnet50": {"size": 64, "width": 16, "classes": 11},
    "resnext50": {"size": 64, "width": 16, "groups": 8, "classes": 11},
    "mobilenet_v2": {"size": 64},
    "bert_base": {"layers": 2, "width": 48, "heads": 4, "tokens": 13, "vocabulary": 97},
    "vit_b16": {"size": 48, "layers": 2, "width": 48, "heads": 4, "classes": 11},
}


def feeds_for(imported, rng):
    feeds = {}
    for name, value in zip(imported.input_names, imported.graph.inputs, strict=True):
        shape = value.type.static_shape
        if value.type.dtype.is_float:
            feeds[name] = rng.standard_normal(shape).astype(np.float32)
        else:
            feeds[name] = rng.integers(0, 97 if name == "input_ids" else 2, shape)
    return feeds


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [1, 2])
def test_generated_models(name, batch):
    data = build(name, seed=7, batch=batch, **SMALL[name])
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    imported = import_model(data)
    feeds = feeds_for(imported, np.random.default_rng(1))
    pairs = zip(imported.input_names, imported.graph.inputs, strict=True)
    by_value = {value.name: feeds[input_name] for input_name, value in pairs}
    ours = run_graph(imported.graph, by_value)
    wide = run_graph(imported.graph, by_value, wide=True)
    theirs = onnxruntime.InferenceSession(data).run(None, feeds)
    for got, exact, want in zip(ours.values(), wide.values(), theirs, strict=True):
        assert exact.dtype == np.float64
        scale = np.abs(want).max()
        assert 0.1 < want.std() < 10
        assert np.abs(got - want).max() < 1e-5 * scale
        assert np.abs(exact - want).max() < 1e-5 * scale


def test_seeds_decide_the_weights():
    first, same, other = (build("resnet18", seed, **SMALL["resnet18"]) for seed in (1, 1, 2))
    assert first == same != other


def test_generated_models_have_the_exporters_operators():
    def operators(name):
        model = onnx.load_from_string(build(name, **SMALL[name]))
        return collections.Counter(node.op_type for node in model.graph.node)

    assert operators("resnet50")["Conv"] == 53
    assert operators("mobilenet_v2")["Clip"] == 35
    bert = operators("bert_base")
    assert (bert["Erf"], bert["Softmax"], bert["LayerNormalization"]) == (2, 2, 5)


LIGHT = pathlib.Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light"


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_light_models_import_to_the_declared_shapes(path):
    data = path.read_bytes()
    graph = import_model(data).graph
    declared = onnx.load_from_string(data).graph.output
    for value, info in zip(graph.outputs, declared, strict=True):
        assert value.type.shape == tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    constants = {c.value.name for c in graph.constants}
    assert all(any(v and v.name not in constants for v in node.inputs) for node in graph.nodes)
