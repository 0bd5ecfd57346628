"""Small operators and those on images, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from farrier.errors import UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from tests.frontends.onnx.importer.microsoft.against import (
    Numbers,
    by_onnx_runtime,
    check,
    i32,
    one_node,
    same,
)

NUMBERS = Numbers(20261206)
f32 = NUMBERS.f32


@pytest.mark.parametrize(
    ("op", "inputs", "fixed", "attrs"),
    [
        ("GatherND", [f32(3, 4), np.array([[0], [2]])], (), {}),
        ("Trilu", [f32(2, 3, 4)], (), {"upper": 0}),
        ("Trilu", [f32(3, 4), np.array(1)], (1,), {}),
        ("Pad", [f32(2, 3), np.array([[1, 0, 0, 2]]), f32(1)], (1, 2), {}),
        ("Pad", [f32(2, 3), np.array([0, 1, 0, 2])], (1,), {"mode": "reflect"}),
        ("Range", [np.array([0]), np.array([5])], (0, 1), {}),
        ("Range", [np.array(1.5, "f4"), np.array(7, "f4"), np.array(2, "f4")], (0, 1, 2), {}),
        ("ExpandDims", [f32(2, 3), np.int32(-1)], (1,), {}),
        ("ExpandDims", [f32(2, 3), np.int32(1)], (), {}),
        ("CDist", [f32(3, 4), f32(2, 4)], (), {}),
        ("CDist", [f32(3, 4), f32(2, 4)], (), {"metric": "euclidean"}),
        ("UnfoldTensor", [f32(2, 8)], (), {"size": 3, "step": 2}),
        ("UnfoldTensor", [f32(5, 2)], (), {"size": 2, "step": 1, "dim": 0}),
        ("MaxpoolWithMask", [f32(1, 2, 4, 4), np.ones((1, 2, 4, 4), "i4")], (),
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("ConvTransposeWithDynamicPads", [f32(1, 2, 3, 3), f32(2, 1, 2, 2),
         np.array([0, 0, 1, 1])], (2,), {}),
        ("ConvTransposeWithDynamicPads", [f32(1, 2, 3, 3), f32(2, 1, 2, 2),
         np.array([0, 1, 1, 0])], (), {}),
    ],
)  # fmt: skip
def test_as_onnx_runtime(op, inputs, fixed, attrs):
    check(op, inputs, fixed=fixed, **attrs)


def test_distinct_numbers_in_the_order_of_first_occurrence():
    x = np.array([2, 1, 1, 3, 4, 3], np.float32)
    want = [x[[0, 1, 3, 4]], np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])]
    check("Unique", [x], expected=want, outputs=3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_inverse_matrices(size):
    x = f32(2, 3, size, size) + 2 * np.eye(size, dtype=np.float32)
    check("Inverse", [x], tolerance=1e-4, is_compiled=True)
    turned = np.roll(np.eye(size, dtype=np.float32), 1, axis=0) * 3  # The diagonal is zero.
    check("Inverse", [turned], is_compiled=True)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_tokens_that_would_repeat_an_ngram(size):
    tokens = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4], [0, 1, 2, 3, 4]])
    inputs = [tokens, f32(3, 6)]
    check("NGramRepeatBlock", inputs, ngram_size=size, is_compiled=size == 2)


def test_one_artifact_blocks_ngrams_of_texts_of_any_length():
    dims = {0: ("batch", "length"), 1: ("batch", 6)}
    artifact = None
    for length in (4, 9):
        inputs = [NUMBERS.below(3, 2, length, dtype=np.int64), f32(2, 6)]
        data, feeds = one_node("NGramRepeatBlock", inputs, dims=dims, ngram_size=3)
        shapes = {"x0": ("batch", "length:3..64")}
        artifact = artifact or farrier.compile(data, verify=False, threads=1, shapes=shapes)
        same(list(artifact.run(feeds).values()), by_onnx_runtime(data, feeds))


BOXES = np.array([[0, 0, 1, 1], [0.13, 0.3, 0.71, 0.9], [-0.1, 0, 1.2, 0.5], [0.8, 0.9, 0.2, 0.1]])


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 4), (1, 1), (1, 5)])
def test_boxes_of_images(mode, size):
    inputs = [f32(2, 3, 6, 7), BOXES.astype(np.float32), i32(0, 1, 1, 0), i32(*size)]
    attrs = {"mode": mode, "extrapolation_value": 0.5, "fixed": (3,)}
    check("CropAndResize", inputs, is_compiled=size[0] == 3, **attrs)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_samples_of_a_grid(mode, padding):
    inputs = [f32(1, 2, 4, 5), f32(1, 3, 3, 2)]
    for corners in (0, 1):
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        check("GridSample", inputs, **attrs)


@pytest.mark.parametrize(
    ("op", "instead"),
    [
        ("BeamSearch", "write the loop around its session"),
        ("Sampling", "write the loop around its session"),
        ("Tokenizer", "feed it the tokens"),
        ("PackedAttention", "ONNX Runtime's CPU provider"),
    ],
)
def test_what_is_out_of_scope_says_what_to_do_instead(op, instead):
    data, _ = one_node(op, [f32(3)])
    with pytest.raises(UnsupportedOperatorError, match=f"{op}.*") as error:
        import_model(data)
    assert instead in str(error.value.hint)
