"""Gates and causal convolutions, against ONNX Runtime, or numpy where it has no CPU kernel."""

from __future__ import annotations

import numpy as np
import pytest

import farrier
from tests.frontends.onnx.importer.microsoft.against import (
    Numbers,
    by_onnx_runtime,
    check,
    one_node,
    same,
)

NUMBERS = Numbers(20261207)
f32 = NUMBERS.f32


def test_gates():
    x, y, gate = f32(2, 3, 8), f32(2, 3, 8), f32(2, 3, 1)
    check("ScaledSiLU", [x], alpha=0.7)
    check("ScaledSiLU", [x, np.float32(-1.3)])
    check("GatedAdd", [x, y, gate])
    for activation in ("silu", "swish", "sigmoid"):
        check("GatedRMSNorm", [x, f32(4), y], activation=activation)


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_swiglu_by_its_formula(limit):
    both = f32(2, 3, 8)
    gate, linear = np.split(both, 2, axis=-1)
    if limit:
        gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    want = gate / (1 + np.exp(-1.7 * gate)) * (linear + 1)
    attrs = {"limit": limit, "activation_alpha": 1.7, "activation_beta": 1.0}
    check("SwiGLU", [both], expected=[want], **attrs)
    check("SwiGLU", np.split(both, 2, axis=-1), expected=[want], **attrs)


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("is_last", [0, 1])
@pytest.mark.parametrize("has_past", [False, True])
def test_causal_convolutions(dilation, is_last, has_past):
    x, weights, bias, past = f32(2, 6, 5), f32(6, 1, 4), f32(6), f32(2, 6, 3 * dilation)
    if is_last:
        x, past = x.swapaxes(1, 2), past.swapaxes(1, 2)
    attrs = {"dilation": dilation, "channels_last": is_last, "outputs": 2}
    inputs = [x, weights, bias, past if has_past else None]
    check("CausalConvWithState", inputs, activation="silu", fixed=(1, 2), **attrs)
    check("CausalConvWithState", [x, weights], fixed=(1,), **attrs)


def test_one_artifact_convolves_any_length():
    dims = {0: ("batch", 6, "length"), 3: ("batch", 6, 3)}
    artifact, weights = None, f32(6, 1, 4)
    for batch, length in ((2, 5), (1, 1)):
        inputs = [f32(batch, 6, length), weights, None, f32(batch, 6, 3)]
        data, feeds = one_node("CausalConvWithState", inputs, 2, fixed=(1,), dims=dims)
        artifact = artifact or farrier.compile(data, verify=False, threads=1)
        same(list(artifact.run(feeds).values()), by_onnx_runtime(data, feeds))


def test_products_of_sixteen_bits():
    a, b = NUMBERS.codes(np.int16, 3, 5) // 64, NUMBERS.codes(np.int16, 5, 4) // 64
    check("MatMulInteger16", [a, b], is_compiled=True)
