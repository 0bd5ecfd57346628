"""Inputs and outputs that stay in the memory of the GPU, also those of other libraries."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import farrier
from farrier.errors import InputMismatchError, UsageError
from farrier.runtime.device_array import DeviceArray
from tests.targets.cuda.memory import PLACE
from tests.targets.cuda.test_models import LAYERS, LAYERS_OF_FOUR, _random

ON_DEVICE, GRAPH = "cuMemcpyDtoDAsync_v2", "cuGraphLaunch"


class Foreign:
    """An array of another library on CUDA, which states the number of its GPU."""

    def __init__(self, array, device=0):
        self._array, self._device = array, device

    def __dlpack_device__(self):
        return 2, self._device

    def __dlpack__(self, *, stream):
        assert stream  # The library makes the array ready for that stream.
        return self._array.__dlpack__(stream=stream)


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """Return the artifact's file: each test loads it for a driver of its own."""
    artifact = farrier.compile(LAYERS, target="cuda:sm_80", verify=False)
    return artifact.save(tmp_path_factory.mktemp("layers") / "layers.farrier")


@pytest.fixture
def session(library, layers):
    session = farrier.load(layers).session()
    yield session
    session.close()


def test_nothing_goes_through_the_host(session, library):
    for rows in (5, 5, 9):
        x = _random(rows, 20)
        there = session.to_device(x)
        library.calls.clear()
        results = session.run_on_device({"x": there})
        assert {each for each in library.calls if "Memcpy" in each} <= {
            ON_DEVICE,
            "cuMemcpyHtoDAsync_v2",  # The sizes of a run.
        }
        for name, expected in session.run({"x": x}).items():
            assert results[name].shape == expected.shape
            np.testing.assert_array_equal(results[name].numpy(), expected)
    again = session.run_on_device({"x": session.to_device(_random(5, 20))})
    library.calls.clear()
    session.run_on_device({"x": session.to_device(_random(5, 20))})
    assert library.calls[1:] == [ON_DEVICE, GRAPH, ON_DEVICE, ON_DEVICE]
    assert again["y"].nbytes == 200


def test_an_array_of_another_library_is_taken_where_it_lies_and_given_back(session, library):
    x = _random(5, 20)
    there = session.to_device(x)
    place = there.memory.address >> PLACE
    results = session.run_on_device({"x": Foreign(there)})
    np.testing.assert_array_equal(results["y"].numpy(), session.run({"x": x})["y"])
    assert place in library.memory.arrays
    del there
    gc.collect()
    assert place not in library.memory.arrays


def test_an_output_is_lent_to_another_library(session, library):
    y = session.run_on_device({"x": _random(5, 20)})["y"]
    expected, capsule = y.numpy(), y.__dlpack__()
    held = len(library.memory.arrays)
    y_again = DeviceArray(y.device, y.memory, y.shape, y.dtype)
    del y
    np.testing.assert_array_equal(y_again.numpy(), expected)
    del y_again
    assert len(library.memory.arrays) == held
    del capsule
    assert len(library.memory.arrays) == held - 1


def test_an_array_that_does_not_fit_is_named(session):
    with pytest.raises(InputMismatchError, match="the model takes float32") as error:
        session.run_on_device({"x": session.to_device(_random(5, 20).astype(np.float64))})
    assert error.value.hint
    there = session.to_device(_random(5, 20))
    there.device = type("Other", (), {"number": 1, "synchronize": lambda self: 0})()
    with pytest.raises(InputMismatchError, match="input x lies on GPU 1, and the model runs on"):
        session.run_on_device({"x": Foreign(there)})


def test_a_model_of_the_processor_has_no_memory_of_a_device():
    session = farrier.compile(LAYERS_OF_FOUR, verify=False).session()
    with pytest.raises(UsageError, match="runs on the processor") as error:
        session.run_on_device({"x": _random(4, 24)})
    assert "--target cuda" in error.value.hint
    session.close()
