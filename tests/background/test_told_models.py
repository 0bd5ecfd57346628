"""Tests that a model that is described to another process is the same there, or an error."""

from __future__ import annotations

import os

import onnx
import pytest

from bench import models
from farrier.errors import InvalidModelError
from farrier.frontends.onnx.model.file import Model

MODEL = models.build("mobilenet_v2", size=32, stages=1)


@pytest.fixture
def path(tmp_path):
    """A model whose weights are in weights.data in the same folder."""
    path = tmp_path / "model.onnx"
    model = onnx.load_from_string(MODEL)
    onnx.save(model, path, save_as_external_data=True, location="weights.data", size_threshold=0)
    return path


@pytest.mark.parametrize("kind", ["path", "bytes", "files"])
def test_models_of_every_kind_reach_another_process(path, tmp_path, kind):
    data = path.with_name("weights.data")
    model = {
        "path": lambda: Model.of_path(path),
        "bytes": lambda: Model.of_bytes(path.read_bytes(), folder=path.parent),
        "files": lambda: Model.of_files(path, {"weights.data": data}),
    }[kind]()
    received = Model.of_told(model.tells(tmp_path / "copy.onnx"))
    assert received.name == model.name
    assert bytes(received.message) == bytes(model.message)
    assert bytes(received.data("weights.data").view) == data.read_bytes()


@pytest.mark.parametrize("name", ["model.onnx", "weights.data"])
def test_a_file_that_has_changed_since_is_refused(path, tmp_path, name):
    model = Model.of_path(path)
    model.data("weights.data")
    description = model.tells(tmp_path / "copy.onnx")
    os.utime(path.with_name(name), (1, 1))
    with pytest.raises(InvalidModelError, match=f"{name} has changed since model was compiled"):
        Model.of_told(description)
