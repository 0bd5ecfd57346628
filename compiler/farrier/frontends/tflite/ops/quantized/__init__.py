"""Rules of operators on quantized tensors, with exactly the results of TFLite's reference kernels.

All arithmetic is on integers, by the operators `Requantize`, `HighProduct`, `RoundedShift` and
`LeadingZeros` (`farrier/ops/fixed_point.py`), or by a table of the results for all 256 bytes.
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
