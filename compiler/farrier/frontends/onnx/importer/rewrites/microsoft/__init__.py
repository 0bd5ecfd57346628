"""Rewrite operators of com.microsoft, which ONNX Runtime's optimizers and exporters write, to
ONNX's own.

The formulas are those of ONNX Runtime's ContribOperators.md. Each module rewrites the operators of
one theme. Farrier's passes fuse the resulting nodes again; attention is rewritten to the nodes that
the passes recognize.
"""

from __future__ import annotations

from farrier.frontends.onnx.importer.limits import MICROSOFT
from farrier.frontends.onnx.importer.rewrites.microsoft import (
    activations,
    attention,
    block_weights,
    channels_last,
    experts,
    gated,
    group_query,
    images,
    integers,
    normalization,
    plain,
    products,
    qlinear,
    rotary,
)
from farrier.frontends.onnx.importer.scope import Upgrade

_THEMES = (
    activations,
    attention,
    block_weights,
    channels_last,
    experts,
    gated,
    group_query,
    images,
    integers,
    normalization,
    plain,
    products,
    qlinear,
    rotary,
)
_GENERATION = (
    "a search that calls a model in a loop is the program's: compile the decoder that is its "
    "attribute, and write the loop around its session"
)
_TOKENS = "text becomes tokens before the model: run the tokenizer outside, and feed it the tokens"
_PACKED = "it has a kernel for GPUs alone: export the model for ONNX Runtime's CPU provider"
# Operators that Farrier does not compile, each with a hint on what to do instead.
OUT_OF_SCOPE = {
    f"{MICROSOFT}:{name}": hint
    for hint, names in (
        (_GENERATION, ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")),
        (_TOKENS, ("Tokenizer",)),
        (_PACKED, ("PackedAttention", "PackedMultiHeadAttention", "PagedAttention")),
        (_PACKED, ("RemovePadding", "RestorePadding", "LongformerAttention")),
    )
    for name in names
}
RULES: dict[str, Upgrade] = {
    **{f"{MICROSOFT}:{name}": rule for theme in _THEMES for name, rule in theme.RULES.items()},
    # ONNX Runtime writes this operator in ONNX's own domain.
    "SimplifiedLayerNormalization": normalization.simplified_layer_normalization,
}
