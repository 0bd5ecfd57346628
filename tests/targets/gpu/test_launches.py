"""The launches of whole models: a GPU waits between two of them as long as a small one takes."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

import farrier
from bench import models
from tests.targets.webgpu import webgpu

onnxruntime = pytest.importorskip("onnxruntime")


def _steps(artifact, tmp_path):
    """The steps of an artifact's program: copies, launches, calls of the host."""
    path = tmp_path / "model.farrier"
    artifact.save(path)
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("program.json"))["steps"]


def _launches(artifact, tmp_path):
    return sum(step["step"] == "launch" for step in _steps(artifact, tmp_path))


def test_one_launch_computes_queries_keys_and_values(tmp_path):
    webgpu.device()
    data = models.build("bert_base", layers=2, tokens=16, width=64, heads=2, vocabulary=50)
    artifact = farrier.compile(data, target="webgpu", verify=False)
    assert _launches(artifact, tmp_path) == 2 * 7 + 6
    feed = {
        "input_ids": np.random.default_rng(0).integers(0, 50, (1, 16)),
        "attention_mask": np.ones((1, 16), np.int64),
        "token_type_ids": np.zeros((1, 16), np.int64),
    }
    expected = onnxruntime.InferenceSession(data).run(None, feed)
    for result, right in zip(artifact.run(feed).values(), expected, strict=True):
        np.testing.assert_allclose(result, right, 1e-4, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"), [("resnet50", 56), ("mobilenet_v2", 55), ("bert_base", 98), ("vit_b16", 102)]
)
def test_whole_models_take_few_launches(name, most, tmp_path):
    artifact = farrier.compile(models.build(name), target="webgpu", verify=False)
    assert _launches(artifact, tmp_path) <= most
