"""BERT (Devlin et al., arXiv:1810.04805)."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from bench.models.writer import Size, Writer

_POSITIONS = 512


def bert_base(
    seed: int,
    *,
    batch: Size = 1,
    tokens: Size = 128,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    intermediate: int | None = None,
    vocabulary: int = 30522,
) -> bytes:
    """Return BERT's encoder with its pooler, as transformers' eager attention is exported.

    Inputs `input_ids`, `attention_mask`, `token_type_ids` i64[batch, tokens]; outputs
    `last_hidden_state` f32[batch, tokens, width], `pooler_output` f32[batch, width].
    """
    w = Writer("bert", seed)
    ids = w.input("input_ids", (batch, tokens), TensorProto.INT64)
    mask = w.input("attention_mask", (batch, tokens), TensorProto.INT64)
    types = w.input("token_type_ids", (batch, tokens), TensorProto.INT64)
    x = w.op("Gather", w.normal((vocabulary, width), 0.6), ids)
    x = w.op("Add", x, w.op("Gather", w.normal((2, width), 0.6), types))
    positions = _positions(w, tokens)
    x = w.op("Add", x, w.op("Gather", w.normal((_POSITIONS, width), 0.6), positions))
    bias = _mask_bias(w, mask, batch, tokens)
    x = w.layer_norm(x, width, 1e-12)
    for _ in range(layers):
        attended = w.linear(_attention(w, x, bias, batch, tokens, width, heads), width, width)
        x = w.layer_norm(w.op("Add", attended, x), width, 1e-12)
        inner = intermediate or 4 * width
        y = w.linear(w.gelu(w.linear(x, width, inner)), inner, width)
        x = w.layer_norm(w.op("Add", y, x), width, 1e-12)
    first = w.op("Gather", x, w.constant(0, np.int64), axis=1)
    pooled = w.op("Tanh", w.gemm(first, width, width))
    w.output(x, "last_hidden_state", (batch, tokens, width))
    w.output(pooled, "pooler_output", (batch, width))
    return w.finish()


def _positions(w: Writer, tokens: Size) -> str:
    """Add a constant with the positions 0 to tokens - 1, i64[1, tokens]."""
    if not isinstance(tokens, str):
        return w.weight(np.arange(tokens, dtype=np.int64).reshape(1, tokens))
    positions = w.weight(np.arange(_POSITIONS, dtype=np.int64).reshape(1, _POSITIONS))
    zero, unit = w.constant([0], np.int64), w.constant([1], np.int64)
    return w.op("Slice", positions, zero, w.sizes([tokens]), unit, unit)


def _mask_bias(w: Writer, mask: str, batch: Size, tokens: Size) -> str:
    """Convert an attention mask [batch, tokens] of 1 and 0 to a bias [batch, 1, tokens, tokens] of
    0 and the lowest f32."""
    for axis in (1, 2):
        mask = w.op("Unsqueeze", mask, w.constant([axis], np.int64))
    mask = w.op("Expand", mask, w.shape((batch, 1, tokens, tokens)))
    masked = w.op("Sub", w.constant(1.0), w.op("Cast", mask, to=TensorProto.FLOAT))
    lowest = w.constant(np.finfo(np.float32).min)
    return w.op("Where", w.op("Cast", masked, to=TensorProto.BOOL), lowest, masked)


def _attention(
    w: Writer, x: str, bias: str, batch: Size, tokens: Size, width: int, heads: int
) -> str:
    """Add scaled dot-product attention with separate projections; heads are split by Reshape and
    Transpose."""
    split = (batch, tokens, heads, width // heads)
    query, key, value = (w.reshape(w.linear(x, width, width), split) for _ in range(3))
    query = w.op("Transpose", query, perm=[0, 2, 1, 3])
    key = w.op("Transpose", key, perm=[0, 2, 3, 1])
    value = w.op("Transpose", value, perm=[0, 2, 1, 3])
    scores = w.op("Mul", w.op("MatMul", query, key), w.constant((width // heads) ** -0.5))
    weights = w.op("Softmax", w.op("Add", scores, bias), axis=-1)
    mixed = w.op("Transpose", w.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return w.reshape(mixed, (batch, tokens, width))
