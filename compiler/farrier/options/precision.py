"""The element type that contractions multiply in, and the errors that come with rounding."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from farrier.errors import UsageError
from farrier.ir.types import DType

if TYPE_CHECKING:
    from farrier.ir.graph import Graph


class Precision(enum.StrEnum):
    """What a user may ask for. Sums, and all that is no contraction, are f32 in either."""

    F32 = "f32"
    BF16 = "bf16"

    @property
    def tolerance(self) -> float:
        """The largest error of a whole model that passes verification, as a share of an output's
        range. A bf16 has 8 significant bits: each operand is off by up to 0.2%."""
        return {Precision.F32: 1e-4, Precision.BF16: 5e-2}[self]


def parse_precision(text: str) -> Precision:
    """`"f32"` or `"bf16"`; raises UsageError for any other text."""
    try:
        return Precision(text)
    except ValueError:
        raise UsageError(
            f"there is no precision {text!r}", hint="--precision f32 or --precision bf16"
        ) from None


def rounding(graph: Graph) -> float:
    """How far a result may be off, as a share of its range, because what lies between two numbers
    of a type is rounded to either: two steps of the coarsest type that anything is rounded to, a
    narrow float or the result of QuantizeLinear. 0 where all is f32, f64 and exact integers."""
    shares = [0.0]
    for node in graph.nodes:
        shares += map(rounding, node.regions)
        for value in node.outputs:
            dtype = value.type.dtype
            if dtype.is_narrow_float or node.op == "QuantizeLinear":
                shares.append(2.0 ** (1 - _significant_bits(dtype)))
    return max(shares)


def _significant_bits(dtype: DType) -> int:
    if dtype.is_integer:
        return dtype.bits
    from farrier.ir.narrow import FORMATS

    others = {DType.BF16: 8, DType.F8E8M0: 1}
    return others[dtype] if dtype in others else FORMATS[dtype].mantissa_bits + 1
