"""`python -m bench.overhead`, on few calls."""

from __future__ import annotations

import pytest

from bench.overhead import MODELS, measure, table


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_call_is_timed(name):
    overhead = measure(name, MODELS[name](), calls=10)
    ways = (overhead.session, overhead.artifact, overhead.copied, overhead.onnxruntime)
    assert all(0 < way < 1e6 for way in ways)
    assert overhead.overhead == overhead.session - overhead.native
    assert table([overhead]).row_count == 1
