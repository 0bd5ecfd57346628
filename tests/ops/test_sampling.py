"""GridSample against ONNX Runtime: modes, paddings, places far outside."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images(check_operator, rng, mode, padding, aligned):
    x = rng.standard_normal((2, 3, 5, 7)).astype(np.float32)
    grid = (rng.random((2, 4, 3, 2)) * 4 - 2).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    check_operator("GridSample", [x, grid], opset=20, tolerance=2e-5, **attrs)


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_volumes(check_operator, rng, padding):
    x = rng.standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    grid = (rng.random((1, 2, 3, 2, 3)) * 3 - 1.5).astype(np.float32)
    check_operator("GridSample", [x, grid], opset=20, tolerance=2e-5, padding_mode=padding)


def test_one_element_and_places_that_are_no_numbers(check_operator, rng):
    x = np.array([[[[3.0]]]], np.float32)
    grid = np.array([[[[0.0, 0.0], [5.0, 0.2]]]], np.float32)
    expected = np.array([[[[3.0, 0.0]]]], np.float32)
    check_operator("GridSample", [x, grid], opset=20, expected=[expected])
