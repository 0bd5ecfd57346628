"""TopK against ONNX Runtime: ties, every element type, every axis."""

from __future__ import annotations

import numpy as np
import pytest


def k_of(value):
    return {1: np.array([value], np.int64)}


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((7,), 0, 1),
        ((1,), 0, 1),
        ((3, 31), -1, 5),
        ((3, 31), 0, 2),
        ((2, 17, 3), 1, 17),
        ((1, 1009), 1, 64),
        ((3, 1, 64), 2, 64),
        ((2, 65), 1, 17),
        ((5, 2), 1, 0),
    ],
)
def test_shapes(check_operator, rng, shape, axis, k, largest):
    x = rng.standard_normal(shape).astype(np.float32)
    check_operator("TopK", [x], static=k_of(k), outputs=2, axis=axis, largest=largest)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("k", [9, 23])  # A heap, and a sort of all.
def test_of_equals_the_first_comes_first(check_operator, rng, dtype, largest, k):
    x = rng.integers(-3, 4, (4, 57)).astype(dtype)
    check_operator("TopK", [x], static=k_of(k), outputs=2, largest=largest)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [9, 57])
def test_nan_is_the_greatest(check_operator, rng, largest, k):
    x = rng.integers(-3, 4, (4, 57)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    x[:, 7] = np.inf
    check_operator("TopK", [x], static=k_of(k), outputs=2, largest=largest)


def test_unsigned_and_extreme_integers(check_operator):
    x = np.array([[0, 255, 3, 255, 128, 127]], np.uint8)
    order = np.array([[1, 3, 4, 5]], np.int64)
    check_operator("TopK", [x], static=k_of(4), outputs=2, expected=[x[:, order[0]], order])
    y = np.array([2**63 - 1, -(2**63), 0], np.int64)
    check_operator("TopK", [y], static=k_of(3), outputs=2, largest=0)


def test_before_opset_10_k_was_an_attribute(check_operator, rng):
    x = rng.standard_normal((3, 12)).astype(np.float32)
    check_operator("TopK", [x], outputs=2, opset=9, k=4, axis=1)
