"""The cost of open dims: which sizes are raced, and the lines of the geometric means."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnxruntime
import pytest

from bench import models, opened
from bench.models.writer import Writer, image
from bench.workloads import NAMES, workload

SETTINGS = opened.Settings(threads=1, rounds=1, round_s=0.001)
SMALL = {
    "resnet18": {"size": 64, "width": 16, "classes": 11},
    "resnet50": {"size": 64, "width": 16, "classes": 11},
    "resnext50": {"size": 64, "width": 16, "groups": 8, "classes": 11},
    "mobilenet_v2": {"size": 64},
    "bert_base": {"layers": 2, "width": 48, "heads": 4, "tokens": 13, "vocabulary": 97},
    "vit_b16": {"size": 48, "layers": 2, "width": 48, "heads": 4, "classes": 11},
}


@pytest.mark.parametrize("name", models.NAMES)
def test_a_model_of_open_dims_is_the_model(name):
    """Its outputs are those of the model of fixed dims, whose weights it has."""
    free = {"bert_base": {"tokens": "tokens"}, "vit_b16": {}}.get(
        name, {"size": ("height", "width")}
    )
    fixed, left_open = (
        onnxruntime.InferenceSession(models.build(name, **{**SMALL[name], **sizes}))
        for sizes in ({"batch": 3}, {"batch": "batch", **free})
    )
    named = {dim for port in left_open.get_inputs() for dim in port.shape if isinstance(dim, str)}
    assert named == {"batch", *np.ravel(list(free.values()))}
    rng = np.random.default_rng(0)
    inputs = {
        port.name: rng.standard_normal(port.shape).astype("f4")
        if "float" in port.type
        else rng.integers(0, 2, port.shape)
        for port in fixed.get_inputs()
    }
    for wanted, actual in zip(fixed.run(None, inputs), left_open.run(None, inputs), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=1e-5)


def test_every_model_of_the_bench_has_open_dims():
    assert all(workload(name).opened is not None for name in NAMES)
    with pytest.raises(KeyError):
        models.build("unheard of")


@pytest.mark.long
def test_places_of_one_model(monkeypatch):
    monkeypatch.setattr(opened, "_BATCHES", (3,))
    monkeypatch.setattr(opened, "_SHARES", (0.5,))
    w = Writer("net", 0)
    x = w.op("Relu", w.conv(w.input("x", image("batch", ("height", "width"))), 3, 8, 3))
    w.output(w.op("GlobalAveragePool", x), "y", ("batch", 8, 1, 1))
    result = opened.measure("net", w.finish(), SETTINGS)
    assert {place.kind: place.shapes["x"] for place in result.places} == {
        "typical": (1, 3, 224, 224),
        "batch": (3, 3, 224, 224),
        "sizes": (1, 3, 112, 112),
    }
    assert all(result.ratio(kind) > 0 for kind in opened._MOST)
    assert "sizes" in opened.show(result)
    assert json.loads(opened._json([result]))["lines"]


def result(name, compile_s, **ratios):
    places = [
        opened.SizeResult(kind, {}, 1.0, ratio)
        for kind, values in ratios.items()
        for ratio in values
    ]
    return opened.Result(name, compile_s, 1.0, tuple(places))


def test_lines_are_geometric_means_over_the_models():
    results = [
        result("a", 1.5, typical=[1.0], batch=[1.2, 1.2], sizes=[4.0, 1.0]),
        result("b", 1.5, typical=[1.21], batch=[1.0]),
    ]
    held = {line.kind: line for line in opened.lines(results)}
    assert held["typical"].value == pytest.approx(1.1)
    assert held["batch"].value == pytest.approx(1.2**0.5)
    assert (held["sizes"].value, held["sizes"].models) == (pytest.approx(2.0), 1)
    assert [line.kind for line in held.values() if not line.is_met] == ["typical", "sizes"]
    assert opened.lines([]) == []


def test_an_unknown_model_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench.opened", "abacus"])
    assert opened.main() == 2
    assert "unknown model 'abacus'" in capsys.readouterr().err
