"""`python -m bench.overhead`, on few calls."""

from __future__ import annotations

import pytest

from bench.overhead import MODELS, measure, table


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_call_is_timed(name):
    found = measure(name, MODELS[name](), calls=10)
    ways = (found.session, found.artifact, found.copied, found.onnxruntime)
    assert all(0 < way < 1e6 for way in ways)
    assert found.overhead == found.session - found.native
    assert table([found]).row_count == 1
