"""Fused normalizations, against ONNX Runtime, and against numpy where it has no CPU kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.importer.microsoft.against import Numbers, check

NUMBERS = Numbers(20261129)
f32 = NUMBERS.f32
TOKENS, KINDS = NUMBERS.below(9, 2, 5), NUMBERS.below(2, 2, 5)
TABLES = [f32(9, 8), f32(6, 8), f32(2, 8), f32(8), f32(8)]
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
WITHOUT_SEGMENTS = [TOKENS, None, *TABLES[:2], None, *TABLES[3:]]


@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skips(op, skip):
    parameters = [f32(8) for _ in range(2 if "Simplified" in op else 3)]
    outputs = [1, 0, 0, 1]
    check(op, [f32(2, 3, 8), f32(*skip), *parameters], outputs=outputs, epsilon=1e-3)
    check(op, [f32(2, 3, 8), f32(*skip), *parameters[:1]], outputs=1)


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ([TOKENS, KINDS, *TABLES, MASK], 2),
        (WITHOUT_SEGMENTS, 2),
        ([*WITHOUT_SEGMENTS, MASK], 3),
        ([TOKENS, KINDS, *TABLES, None, NUMBERS.below(6, 2, 5)], 3),
        ([TOKENS, KINDS, *TABLES, MASK, NUMBERS.below(6, 1, 5)], 3),
    ],
)
def test_embeddings(inputs, outputs):
    check("EmbedLayerNormalization", inputs, outputs=outputs, epsilon=1e-3)


def group_norm(x, gamma, beta, groups, silu):
    """x with its channels last."""
    wide = x.astype(np.float64)
    batch, height, width = x.shape[:3]
    parts = wide.reshape(batch, height, width, groups, -1)
    mean = parts.mean((1, 2, 4), keepdims=True)
    normal = (parts - mean) / np.sqrt(parts.var((1, 2, 4), keepdims=True) + 1e-5)
    y = normal.reshape(x.shape) * gamma + beta
    return (y / (1 + np.exp(-y)) if silu else y).astype(x.dtype)


@pytest.mark.parametrize("silu", [0, 1])
def test_groups_of_channels(silu):
    x, gamma, beta = f32(2, 4, 5, 6), f32(6), f32(6)
    want = group_norm(x, gamma, beta, 3, silu)
    attrs = {"groups": 3, "activation": silu}
    check("GroupNorm", [x, gamma, beta], expected=[want], **attrs)
    first = x.transpose(0, 3, 1, 2), want.transpose(0, 3, 1, 2)
    check("GroupNorm", [first[0], gamma, beta], expected=[first[1]], channels_last=0, **attrs)


@pytest.mark.parametrize("skip", [(2, 4, 5, 6), (2, 1, 1, 6), (2, 6)])
def test_groups_of_channels_of_a_sum(skip):
    x, gamma, beta, more, bias = f32(2, 4, 5, 6), f32(6), f32(6), f32(*skip), f32(6)
    total = x + (more if len(skip) == 4 else more[:, None, None]) + bias
    want = [group_norm(total, gamma, beta, 3, False), total]
    attrs = {"groups": 3, "activation": 0, "outputs": 2}
    check("SkipGroupNorm", [x, gamma, beta, more, bias], expected=want, **attrs)


@pytest.mark.parametrize("has_segments", [False, True])
@pytest.mark.parametrize("mask", [None, MASK])
def test_quantized_embeddings(has_segments, mask):
    tables = [NUMBERS.codes(np.uint8, *table.shape) for table in TABLES]
    scales = [np.float32(NUMBERS.positive()) for _ in tables]
    zeros = [NUMBERS.codes(np.uint8) for _ in tables]
    inputs = [TOKENS, KINDS, *tables, mask, *scales, *zeros]
    if not has_segments:
        for position in (1, 4, 10, 15):
            inputs[position] = None
    fixed = (*range(2, 7), *range(8, 18))
    op = "QEmbedLayerNormalization"
    check(op, inputs, outputs=2, fixed=fixed, is_compiled=has_segments and mask is None)


def test_rms_normalization_under_onnx_runtime_s_name():
    inputs = [f32(3, 8), f32(8)]
    check("SimplifiedLayerNormalization", inputs, domain="", axis=-1, epsilon=1e-3)
