"""The rules that convert TFLite's operators to nodes, by name in the schema; one module per family.

A rule takes a `Call` and the builder, adds nodes, and returns its results. Images are NHWC in
TFLite and NCHW in Farrier's operators: rules add transposes, and the pass `assign-layouts` removes
them.
"""

from __future__ import annotations

from collections.abc import Mapping

from farrier.frontends.tflite.call import Rule
from farrier.frontends.tflite.ops import (
    arithmetic,
    control,
    convolution,
    functions,
    indexing,
    logic,
    moving,
    pooling,
    products,
    quantization,
    quantized,
    reductions,
    shapes,
    spectral,
)

RULES: Mapping[str, Rule] = {
    **arithmetic.RULES,
    **control.RULES,
    **convolution.RULES,
    **functions.RULES,
    **indexing.RULES,
    **logic.RULES,
    **moving.RULES,
    **pooling.RULES,
    **products.RULES,
    **quantization.RULES,
    **reductions.RULES,
    **shapes.RULES,
    **spectral.RULES,
}
QUANTIZED: Mapping[str, Rule] = quantized.RULES


def rule_of(name: str, is_quantized: bool) -> Rule | None:
    """Return the rule of an operator, for quantized tensors or others, or None if it is not
    supported."""
    return (QUANTIZED if is_quantized else RULES).get(name)
