"""A small model, as a file and compiled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import farrier
from bench import models


@dataclasses.dataclass(frozen=True)
class Compiled:
    onnx: Path
    artifact: Path


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """MobileNetV2 on 32x32 pixels, without tuning, for one thread."""
    folder = tmp_path_factory.mktemp("small")
    onnx = folder / "small.onnx"
    onnx.write_bytes(models.build("mobilenet_v2", size=32, stages=3))
    artifact = farrier.compile(onnx, threads=1, verify=False)
    return Compiled(onnx, artifact.save(folder / "small.farrier"))
