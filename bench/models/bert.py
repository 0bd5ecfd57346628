"""BERT (Devlin et al., 2018, arXiv:1810.04805): the encoder with its embeddings and pooler."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from bench.models.writer import Writer

_EPSILON = 1e-12
_MASKED = float(np.finfo(np.float32).min)


def bert(
    seed: int = 0,
    batch: int = 1,
    tokens: int = 128,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
) -> bytes:
    """Inputs `input_ids`, `attention_mask`, `token_type_ids` i64[batch, tokens]; outputs
    `last_hidden_state` f32[batch, tokens, width] and `pooler_output` f32[batch, width]."""
    w = Writer("bert", seed)
    ids, attention, kinds = (
        w.input(name, (batch, tokens), TensorProto.INT64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    words = w.node("Gather", w.normal(vocabulary, width, fan_in=1), ids, axis=0)
    types = w.node("Gather", w.normal(2, width, fan_in=4), kinds, axis=0)
    x = w.node("Add", w.node("Add", words, types), w.normal(1, tokens, width, fan_in=4))
    x = w.layer_norm(x, width, _EPSILON)
    mask = _additive_mask(w, attention)
    for _ in range(layers):
        y = w.attention(x, width, heads, batch, tokens, mask)
        x = w.layer_norm(w.node("Add", y, x), width, _EPSILON)
        y = w.linear(w.gelu(w.linear(x, width, 4 * width)), 4 * width, width)
        x = w.layer_norm(w.node("Add", y, x), width, _EPSILON)
    first = w.node("Gather", x, w.weight(np.int64(0)), axis=1)
    weight, bias = w.normal(width, width, fan_in=width), w.normal(width, fan_in=width)
    pooled = w.node("Tanh", w.node("Gemm", first, weight, bias, transB=1))
    shapes = {"last_hidden_state": (batch, tokens, width), "pooler_output": (batch, width)}
    return w.finish(shapes, [x, pooled])


def _additive_mask(w: Writer, attention: str) -> str:
    """0 where a token counts and the lowest float where it does not, [batch, 1, 1, tokens]."""
    wide = w.node("Unsqueeze", attention, w.ints(1, 2))
    inverted = w.node("Sub", w.scalar(1.0), w.node("Cast", wide, to=TensorProto.FLOAT))
    return w.node("Mul", inverted, w.scalar(_MASKED))
