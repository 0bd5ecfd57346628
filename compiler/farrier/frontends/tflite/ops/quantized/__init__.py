"""The operators of TFLite on quantized tensors, exactly as its reference kernels compute them.

All arithmetic is of integers, in the operators `Requantize`, `HighProduct`, `RoundedShift` and
`LeadingZeros` (`farrier/ops/fixed_point.py`), or a table of the 256 results.
"""

from __future__ import annotations

from collections.abc import Mapping

from farrier.frontends.tflite.call import Rule
from farrier.frontends.tflite.ops import control
from farrier.frontends.tflite.ops.quantized import (
    arithmetic,
    conversions,
    exponentials,
    moving,
    pooling,
    reductions,
    sums,
    tables,
)

RULES: Mapping[str, Rule] = {
    **arithmetic.RULES,
    **control.RULES,
    **conversions.RULES,
    **exponentials.RULES,
    **moving.RULES,
    **pooling.RULES,
    **reductions.RULES,
    **sums.RULES,
    **tables.RULES,
}
