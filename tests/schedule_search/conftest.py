"""The toy space that the tests of this folder search."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from toy_space import make_space

from farrier.schedule_search import TuningTask


@pytest.fixture
def toy_task():
    def make(key="t", weight=1, **options):
        return TuningTask(key, f"toy {key}", make_space(**options), weight)

    return make
