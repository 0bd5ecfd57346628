"""Boxes of images against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

BOXES = np.array(
    [[1.2, 0.7, 6.4, 8.1], [-3, 2, 4, 20], [5, 5, 5, 5], [0, 0, 30, 30], [9, 9, 2, 3]], np.float32
)


@pytest.mark.parametrize("samples", [0, 1, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_samples_between_elements(check_operator, rng, samples, mode, transformation):
    x = rng.standard_normal((2, 3, 9, 11)).astype(np.float32)
    boxes = BOXES[:4] if samples == 0 else BOXES
    images = np.array([0, 1, 1, 0, 1], np.int64)[: len(boxes)]
    attrs = {"mode": mode, "sampling_ratio": samples, "spatial_scale": 0.75}
    attrs |= {"output_height": 2, "output_width": 3}
    attrs |= {"coordinate_transformation_mode": transformation}
    check_operator("RoiAlign", [x, boxes, images], tolerance=2e-5, **attrs)


def test_before_opset_16_coordinates_were_not_shifted(check_operator, rng):
    x = rng.standard_normal((1, 2, 7, 7)).astype(np.float32)
    images = np.zeros(2, np.int64)
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    check_operator("RoiAlign", [x, BOXES[:2], images], opset=10, tolerance=2e-5, **attrs)


def test_the_largest_of_each_bin(check_operator, rng):
    x = rng.standard_normal((2, 3, 9, 11)).astype(np.float32)
    images = np.array([[0], [1], [1], [0], [1]], np.float32)
    boxes = np.concatenate([images, BOXES], axis=1)
    check_operator("MaxRoiPool", [x, boxes], pooled_shape=[2, 3], spatial_scale=0.75)
