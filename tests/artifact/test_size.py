"""Tests of the size of an artifact: its share of the model's weights, and Winograd's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.passes.algorithm import Algorithm
from farrier.runtime.size import Size

RNG = np.random.default_rng(4)


def conv(channels, outputs, size):
    """A 3x3 convolution on [1, channels, size, size]."""
    w = RNG.standard_normal((outputs, channels, 3, 3), np.float32)
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
            "conv",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs, size, size])],
            [numpy_helper.from_array(w, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize("channels", [64, 3])
def test_winograd_adds_its_packed_weights_less_the_windows(tmp_path, channels):
    artifact = farrier.compile(conv(channels, 64, 56), target="x86-64-v3", verify=False)
    size = Size.of(artifact, artifact.save(tmp_path / "conv.farrier"))
    windows = 64 * channels * 9 * 4
    assert size.weights_bytes == windows
    (layer,) = artifact.report["algorithms"]["layers"] or [{"algorithm": "direct"}]
    tile = Algorithm(layer["algorithm"]).tile
    assert bool(tile) == (channels == 64)
    expected = windows * (tile + 2) ** 2 // 9 - windows if tile else 0
    assert size.winograd_bytes == expected
    assert str(size).endswith("Winograd") == bool(tile)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (
            Size(3_000_000, 2_000_000, 400_000),
            "3.00 MB: 1.30 times the 2.00 MB of weights, and 0.40 MB for Winograd",
        ),
        (Size(5_840, 0, 0), "5840 bytes, without weights"),
        (Size(6_000, 40, 0), "6000 bytes: 150.00 times the 40 bytes of weights"),
    ],
)
def test_a_size_reads_as_the_file_and_a_ratio_where_there_are_weights(size, words):
    assert str(size) == words
