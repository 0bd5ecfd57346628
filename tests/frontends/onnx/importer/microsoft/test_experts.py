"""Mixtures of experts, against ONNX Runtime, and against numpy where it has no CPU kernel."""

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

NUMBERS = Numbers(20261205)
f32, codes, positive = NUMBERS.f32, NUMBERS.codes, NUMBERS.positive
EXPERTS, WIDTH, INNER = 4, 32, 16


def layers(fused=1):
    """The first and the second layer of all experts, each with a bias."""
    first = f32(EXPERTS, fused * INNER, WIDTH), f32(EXPERTS, fused * INNER)
    return [*first, f32(EXPERTS, WIDTH, INNER), f32(EXPERTS, WIDTH)]


def routed(*shape):
    """Tokens, and what the router says of them."""
    return [f32(*shape, WIDTH), f32(int(np.prod(shape)), EXPERTS)]


@pytest.mark.parametrize("shape", [(1,), (2, 3)])
@pytest.mark.parametrize(
    "attrs",
    [
        {"activation_type": "relu"},
        {"activation_type": "gelu", "k": 2},
        {"activation_type": "silu", "k": 2, "normalize_routing_weights": 1},
        {"activation_type": "identity", "k": 4},
        {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2},
        {
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "activation_alpha": 1.7,
            "activation_beta": 1.0,
            "swiglu_limit": 1.5,
        },
    ],
)
def test_as_onnx_runtime(shape, attrs):
    """One token's experts are gathered; of six tokens all are computed."""
    inputs = [*routed(*shape), *layers(1 + attrs.get("swiglu_fusion", 0))]
    is_compiled = attrs.get("k") == 2 and "swiglu_fusion" in attrs
    check("MoE", inputs, fixed=range(2, 6), is_compiled=is_compiled, **attrs)


def test_a_third_layer_and_halves_of_one():
    x, router = routed(3)
    first, _, last, _ = layers()
    third = f32(EXPERTS, INNER, WIDTH)
    best = router.argmax(-1)
    share = np.exp(router - router.max(-1, keepdims=True))
    share = (share / share.sum(-1, keepdims=True))[np.arange(3), best]
    gate, linear = (np.einsum("toi,ti->to", weights[best], x) for weights in (first, third))
    gated = gate / (1 + np.exp(-gate)) * linear
    want = (np.einsum("toi,ti->to", last[best], gated) * share[:, None]).astype(np.float32)
    inputs = [x, router, first, None, last, None, third]
    check("MoE", inputs, expected=[want], activation_type="silu")
    check("MoE", inputs, expected=[want], activation_type="swiglu")
    both = np.concatenate((first, third), axis=1)
    attrs = {"activation_type": "swiglu", "swiglu_fusion": 2}
    check("MoE", [x, router, both, None, last], expected=[want], **attrs)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_quantized_weights(bits, block, has_zeros):
    inner = 32

    def weights(outputs, inputs):
        packed = codes(np.uint8, EXPERTS, outputs, inputs * bits // 8)
        blocks = [inputs // block] if block else []
        zeros = (EXPERTS, outputs, -(-inputs // 16 * bits // 8)) if block else (
            EXPERTS, outputs * bits // 8
        )  # fmt: skip
        bias = f32(EXPERTS, outputs)
        return packed, positive(EXPERTS, outputs, *blocks), bias, codes(np.uint8, *zeros)

    *first, first_zeros = weights(inner, WIDTH)
    *second, second_zeros = weights(WIDTH, inner)
    zeros = [first_zeros, second_zeros] if has_zeros else [None, None]
    inputs = [*routed(5), *first, *second, None, None, None, *zeros]
    attrs = {"k": 2, "activation_type": "silu", "expert_weight_bits": bits}
    attrs |= {"block_size": block} if block else {}
    for normal in (0, 1):
        # Of constant weights of 8 bits ONNX Runtime rounds what they are multiplied by to bytes.
        want = by_onnx_runtime(*one_node("QMoE", inputs, normalize_routing_weights=normal, **attrs))
        options = {"expected": want, "fixed": range(2, 13), "normalize_routing_weights": normal}
        check("QMoE", inputs, **options, **attrs)
        if normal == 0 and not has_zeros:
            inputs += [None, positive(5, EXPERTS)]


def test_one_artifact_serves_any_number_of_tokens():
    inputs = [*routed(6), *layers()]
    dims = {0: ("tokens", WIDTH), 1: ("tokens", EXPERTS)}
    attrs = {"k": 2, "activation_type": "silu", "fixed": range(2, 6), "dims": dims}
    data, _ = one_node("MoE", inputs, **attrs)
    artifact = farrier.compile(data, verify=False, threads=1)
    for tokens in (6, 1):
        inputs[:2] = routed(tokens)
        data, feeds = one_node("MoE", inputs, **attrs)
        same(list(artifact.run(feeds).values()), by_onnx_runtime(data, feeds))
