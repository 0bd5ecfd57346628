"""The rule of `torch.nn.TransformerEncoder`'s layer, which torch calls as a single operator in
inference."""

from __future__ import annotations

from farrier.frontends.torch.aten.attention import attention
from farrier.frontends.torch.aten.linear import linear
from farrier.frontends.torch.aten.normalization import layer_norm
from farrier.frontends.torch.scope import Scope
from farrier.frontends.torch.table import aten
from farrier.ops import NotSupported


@aten("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    s: Scope,
    x: str,
    width: int,
    heads: int,
    qkv_weight: str,
    qkv_bias: str,
    out_weight: str,
    out_bias: str,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: str,
    norm_bias_1: str,
    norm_weight_2: str,
    norm_bias_2: str,
    up_weight: str,
    up_bias: str,
    down_weight: str,
    down_bias: str,
    mask: str | None = None,
    mask_type: int | None = None,
) -> str:
    if mask is not None:
        raise NotSupported(
            "a mask of an encoder layer (torch.backends.mha.set_fastpath_enabled(False) helps)"
        )

    def attended(y: str) -> str:
        together = linear(s, y, qkv_weight, qkv_bias)
        mixed = _attended(s, together, width, heads)
        return linear(s, mixed, out_weight, out_bias)

    def fed(y: str) -> str:
        hidden = linear(s, y, up_weight, up_bias)
        hidden = s.node("Gelu", hidden, approximate="none") if use_gelu else s.node("Relu", hidden)
        return linear(s, hidden, down_weight, down_bias)

    norms = ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))
    for step, (weight, bias) in zip((attended, fed), norms, strict=True):
        if norm_first:
            x = s.node("Add", x, step(layer_norm(s, x, [width], weight, bias, eps)))
        else:
            x = layer_norm(s, s.node("Add", x, step(x)), [width], weight, bias, eps)
    return x


def _attended(s: Scope, together: str, width: int, heads: int) -> str:
    """Return the self-attention of `together`, [batch, length, 3 · width], which contains queries,
    keys and values along the last axis."""
    batch, length, _ = s.shape(together)
    query, key, value = (
        s.transpose(
            s.reshape(
                s.slice(together, 2, place * width, (place + 1) * width),
                [batch, length, heads, width // heads],
            ),
            (0, 2, 1, 3),
        )
        for place in range(3)
    )
    mixed = attention(s, query, key, value)
    return s.reshape(s.transpose(mixed, (0, 2, 1, 3)), [batch, length, width])
