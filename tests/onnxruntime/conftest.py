"""A cache of its own for the tests, and the helper modules of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package")
def cache_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache") / "farrier"


@pytest.fixture(autouse=True)
def cache(cache_folder, monkeypatch):
    """One cache for all, so that each model is compiled once."""
    monkeypatch.setenv("FARRIER_CACHE", str(cache_folder))
    monkeypatch.delenv("FARRIER_CACHE_BYTES", raising=False)
    return cache_folder
