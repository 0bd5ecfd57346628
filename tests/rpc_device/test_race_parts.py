"""The parts that all races share: runs of a round, turns, ratios, tensors in files, errors."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from farrier_device.baseline import arrays
from farrier_device.baseline.error import error, max_error
from farrier_device.baseline.turns import ratio, runs_of_a_round, turns


@pytest.mark.parametrize(
    ("seconds", "count", "timed"),
    [
        ({1: 0.1, 2: 0.01}, 20, [1, 2]),  # The second guess counts.
        ({1: 0.001, 3: 0.002}, 100, [1, 3]),
        ({1: 0.6}, 1, [1]),  # No run that is slow is repeated to be guessed.
        ({1: 1e-12, 3: 0.0}, 500, [1, 3]),
    ],
)
def test_a_round_takes_about_its_seconds(seconds, count, timed):
    asked = []

    def run_s(runs: int) -> float:
        asked.append(runs)
        return seconds[runs]

    assert runs_of_a_round(run_s, 0.2, most=500) == count
    assert asked == timed


def test_every_other_turn_runs_backwards():
    order = []
    race = turns([lambda name=name: order.append(name) or name for name in "abc"])
    assert [*itertools.islice(race, 3)] == [["a", "b", "c"]] * 3
    assert "".join(order) == "abccbaabc"


def test_the_ratio_is_the_median_of_those_of_rounds():
    assert ratio([[4, 2, 9], [6], [10]], [[2], [1, 2, 3], [1]]) == 3.0


@pytest.mark.parametrize("dtype", ["<f4", "<i8", "?", "<f2", "<U5"])
def test_arrays_survive_a_file_and_start_on_a_cache_line(tmp_path, dtype):
    values = {
        "matrix": np.arange(12).reshape(3, 4).T.astype(dtype),
        "scalar": np.array(1).astype(dtype),
        "empty": np.zeros((0, 3), dtype),
    }
    tensors = [arrays.describe(*item) for item in values.items()]
    with (tmp_path / "tensors").open("w+b", buffering=0) as file:
        for array in values.values():
            arrays.write(array, file.fileno())
        read = arrays.read_together(tensors, file.fileno())
        with pytest.raises(ValueError, match=r"long has [0-9]+ of 8000 bytes"):
            arrays.read({"name": "long", "dtype": "<f8", "shape": [1000]}, file.fileno())
    for name, array in values.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
        assert read[name].ctypes.data % 64 == 0 or array.size == 0


def test_objects_lie_in_no_file():
    with pytest.raises(ValueError, match="the array x contains Python objects"):
        arrays.describe("x", np.array(["text"], object))


def test_errors_are_over_the_range_of_the_reference():
    expected = np.array([1.0, -4.0, np.nan, np.inf])
    assert error(expected.copy(), expected) == 0.0
    assert error(np.array([3.0, -4.0, np.nan, np.inf]), expected) == 0.5
    assert error(np.array([1.0, -4.0, 0.0, np.inf]), expected) == math.inf
    assert error(np.zeros(3), expected) == math.inf
    assert error(np.array(["a"]), np.array(["a"])) == 0.0
    assert error(np.array(["b"]), np.array(["a"])) == math.inf


def test_an_output_of_another_name_is_the_one_in_its_place():
    expected = {"a": np.ones(2), "b": np.full(2, 2.0)}
    assert max_error({"b": np.full(2, 2.0), "a": np.ones(2)}, expected) == 0.0
    assert max_error({"first": np.ones(2), "second": np.full(2, 1.0)}, expected) == 0.5
    assert max_error({"a": np.ones(2)}, expected) == math.inf
    assert max_error({}, {}) is None
