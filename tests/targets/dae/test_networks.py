"""Whole networks on VTA's sizes: `make accelerators`."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from bench.models import build, statically

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "least"), [("resnet18", 22), ("mobilenet_v2", 37)])
def test_a_network_has_the_integers_of_the_processor(name, least):
    pytest.importorskip("onnxruntime", reason="onnxruntime quantizes the network")
    rng = np.random.default_rng(0)
    images = rng.standard_normal((2, 1, 3, 224, 224)).astype("f4")
    model = statically(build(name), [{"x": image} for image in images])
    artifact = farrier.compile(model, target="dae:vta", verify=False)
    assert sum(code.kind == "dae" for code in artifact.code.objects) >= least
    host = farrier.compile(model, verify=False)
    (result,) = artifact.run({"x": images[1]}).values()
    (expected,) = host.run({"x": images[1]}).values()
    assert len(np.unique(expected)) > 50
    assert np.array_equal(result, expected)
