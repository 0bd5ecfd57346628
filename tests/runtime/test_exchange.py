"""An artifact becomes another version of its model while it is in use."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.errors import ArtifactError, UsageError
from tests.control_flow.test_capacities import bounds, ranges

RNG = np.random.default_rng(5)
EXCHANGES, CALLERS = 12, 4


def convolution(channels=16):
    weights = RNG.standard_normal((24, channels, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("n", channels, 17, 17))
    y = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "conv", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


@pytest.fixture(scope="module")
def versions():
    """Two versions of one model, whose results differ in the last bits."""
    model = convolution()
    return [
        farrier.compile(model, threads=2, verify=False, max_layer_error=most)
        for most in (0, 1.5e-5)
    ]


@pytest.fixture
def used(versions):
    """An artifact that is the first of the versions."""
    return versions[0].version()


def test_calls_of_several_threads_go_on_while_versions_are_exchanged(versions, used):
    """Each result is that of one version or the other, to the last bit."""
    inputs = [RNG.standard_normal((size, 16, 17, 17)).astype(np.float32) for size in (1, 2, 5)]
    expected = [[version.run({"x": x})["y"].tobytes() for version in versions] for x in inputs]
    assert all(len(set(both)) == 2 for both in expected)
    sessions = [used.session(threads=threads) for threads in (1, 2)]
    seen = [0, 0]
    over = threading.Event()

    def call(number):
        calls = 0
        while not over.is_set():
            which = (number + calls) % len(inputs)
            (y,) = sessions[number % 2].run({"x": inputs[which]}).values()
            seen[expected[which].index(y.tobytes())] += 1
            calls += 1

    with ThreadPoolExecutor(CALLERS) as executor:
        callers = [executor.submit(call, number) for number in range(CALLERS)]
        try:
            for turn in range(EXCHANGES):
                now = 1 - turn % 2
                used.become(versions[now])
                before, deadline = seen[now], time.monotonic() + 60
                while seen[now] <= before + CALLERS:  # The calls that had begun are over then.
                    assert time.monotonic() < deadline
        finally:
            over.set()
        for caller in callers:
            caller.result()


def test_every_session_runs_the_code_that_the_artifact_has_become(versions, used):
    first, second = used.session(threads=1), used.session(threads=2)
    used.become(versions[1])
    assert first.manifest == second.manifest == versions[1].manifest == used.manifest
    assert (first.threads, second.threads) == (1, 2)
    assert used.session() is second


def test_sizes_and_capacities_carry_over():
    artifact = farrier.compile(ranges(), threads=1, verify=False)
    session, (capacity,) = artifact.session(), artifact.manifest.capacities
    length = 3 * capacity.first
    session.run(bounds(0, length, 1))
    before = session._loaded
    artifact.become(artifact.version())
    after = session._loaded
    assert after is not before
    assert after._capacities == {capacity.symbol: length}
    np.testing.assert_array_equal(session.run(bounds(0, length, 1))["y"], np.arange(length))


def test_calls_between_loading_and_exchange_count(versions, used):
    session = used.session()
    x = RNG.standard_normal((7, 16, 17, 17)).astype(np.float32)
    other = versions[1]
    loaded = session.beside(other.manifest, other.code, other._load_params())
    session.run({"x": x})
    session.exchange(loaded)
    assert loaded._given == {other.manifest.dims[0].symbol: 7}
    assert session.run({"x": x})["y"].tobytes() == other.run({"x": x})["y"].tobytes()


def test_the_code_that_was_in_use_is_unloaded(versions, used):
    before = used.session()._loaded
    used.become(versions[1])
    assert before.closed
    assert not used.session().closed


def test_a_closed_session_stays_closed(versions, used):
    session = used.session()
    other = versions[1]
    loaded = session.beside(other.manifest, other.code, other._load_params())
    session.close()
    session.exchange(loaded)
    assert session.closed
    assert loaded.closed
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": np.zeros((1, 16, 17, 17), np.float32)})
    used.become(other)
    assert not used.session().closed


def test_another_model_is_refused_and_nothing_changes(used):
    session = used.session()
    before, manifest = session._loaded, used.manifest
    other = farrier.compile(convolution(8), threads=2, verify=False)
    with pytest.raises(ArtifactError, match="other inputs"):
        used.become(other)
    assert session._loaded is before
    assert used.manifest is manifest


def test_what_is_saved_is_what_the_artifact_has_become(versions, used, tmp_path):
    first = used.version()
    used.become(farrier.load(versions[1].save(tmp_path / "second.farrier")))
    assert farrier.load(used.save(tmp_path / "used.farrier")).code == versions[1].code
    assert farrier.load(first.save(tmp_path / "first.farrier")).code == versions[0].code
