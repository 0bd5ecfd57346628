"""A cache and a model of the test's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cache_tools import Watched, long_ago, model_bytes


@pytest.fixture
def path(tmp_path):
    """A model's file, written long enough ago to be known by its time."""
    place = tmp_path / "m.onnx"
    place.write_bytes(model_bytes())
    long_ago(place)
    return place


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path / "cache")
