"""The operators of TFLite, one family a file, by their names in the schema.

A rule takes a `Call` and the builder, adds nodes in Farrier's form, and returns its results. Images
are NHWC here and NCHW in Farrier's operators: rules transpose, and the pass `assign-layouts`
removes the transposes.
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
    """Return the rule of an operator on plain or quantized tensors, or None if there is none."""
    return (QUANTIZED if is_quantized else RULES).get(name)
