"""The element type in which contractions multiply, and the error bounds that follow from
rounding.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from farrier.errors import UsageError
from farrier.ir.types import DType

if TYPE_CHECKING:
    from farrier.ir.graph import Graph


class Precision(enum.StrEnum):
    """The precisions from which a user may choose. The precision applies only to contractions;
    everything else is computed in f32, and so are their sums, except sums of up to 32 products of
    f16, which are in f16. TF32 rounds f32 factors to 11 significant bits as they are multiplied, so
    that memory holds f32."""

    F32 = "f32"
    BF16 = "bf16"
    F16 = "f16"
    TF32 = "tf32"

    @property
    def dtype(self) -> DType:
        """The dtype of the operands of contractions in memory."""
        return DType.F32 if self is Precision.TF32 else DType(self.value)

    @property
    def tolerance(self) -> float:
        """The largest error of a complete model that passes verification, as a fraction of an
        output's range.

        A bf16 has 8 significant bits, so each operand is off by up to 0.2%; an f16 has 11, and
        values above 65,504 become infinite; a tf32 has 11 and the range of an f32.
        """
        return {
            Precision.F32: 1e-4,
            Precision.BF16: 5e-2,
            Precision.F16: 2e-2,
            Precision.TF32: 2e-2,
        }[self]


def parse_precision(text: str) -> Precision:
    """Parse `"f32"`, `"bf16"`, `"f16"` or `"tf32"`; raises UsageError for any other text."""
    try:
        return Precision(text)
    except ValueError:
        raise UsageError(
            f"there is no precision {text!r}",
            hint=f"--precision {' or '.join(Precision)}",
        ) from None


def rounding(graph: Graph) -> float:
    """Return an upper bound of the error of a graph's results, as a fraction of their range, due to
    the rounding of values to their types.

    The bound is the largest relative distance of neighbouring numbers, over all types to which
    values are rounded: narrow floats, and results of QuantizeLinear. It is 0 if all values are f32,
    f64 or exact integers.
    """
    shares = [0.0]
    for node in graph.nodes:
        shares += map(rounding, node.regions)
        for value in node.outputs:
            dtype = value.type.dtype
            if dtype.is_narrow_float or node.op == "QuantizeLinear":
                shares.append(rounding_of(dtype))
    return max(shares)


def rounding_of(dtype: DType) -> float:
    """Return the relative distance between neighbouring numbers of a type."""
    return 2.0 ** (1 - _significant_bits(dtype))


def _significant_bits(dtype: DType) -> int:
    if dtype.is_integer:
        return dtype.bits
    from farrier.ir.narrow import FORMATS

    others = {DType.F64: 53, DType.F32: 24, DType.BF16: 8, DType.F8E8M0: 1}
    return others[dtype] if dtype in others else FORMATS[dtype].mantissa_bits + 1
