"""The light models: whole topologies with weights that no compiler folds away."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from bench import models
from farrier.errors import UsageError


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_they_run_and_their_outputs_say_something(name):
    data = models.light(name)
    assert data == models.light(name)
    assert "ConstantOfShape" not in {
        node.op_type for node in onnx.load_from_string(data).graph.node
    }
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (network_input,) = session.get_inputs()
    x = np.random.default_rng(3).standard_normal(network_input.shape).astype(np.float32)
    (probabilities,) = session.run(None, {network_input.name: x})
    assert np.isfinite(probabilities).all()
    assert 1e-4 < probabilities.std() < 0.03  # The output is neither one class alone nor uniform.


def test_a_name_that_is_none_lists_those_that_are():
    with pytest.raises(UsageError, match="no light model 'abacus'") as raised:
        models.light("abacus")
    assert "squeezenet" in raised.value.hint
