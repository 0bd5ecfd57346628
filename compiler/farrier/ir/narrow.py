"""Narrow floats: the numbers that the codes of floating-point formats of at most 16 bits stand for.

A narrow float has a sign, an exponent and a mantissa, as in IEEE 754, but the formats differ in the
meaning of the largest exponent: P. Micikevicius et al., "FP8 Formats for Deep Learning"
(arXiv:2209.05433), E. Noune et al., "8-bit Numerical Formats for Deep Neural Networks"
(arXiv:2206.02915: the FNUZ types), and the OCP Microscaling Formats 1.0 (E8M0, E2M1, E2M3, E3M2).
"""

from __future__ import annotations

import dataclasses

from farrier.ir.types import DType


@dataclasses.dataclass(frozen=True, slots=True)
class FloatFormat:
    """The encoding of a narrow float format. `largest`, `infinity` and `nan` are codes without the
    sign bit; None if the format has no such value.

    A number above the largest becomes infinity; in a format without infinity it becomes NaN, and in
    a format without either the largest number. `has_negative_zero` is False for the FNUZ types, in
    which the code of -0 stands for NaN.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    has_negative_zero: bool = True

    @property
    def sign(self) -> int:
        """The mask of the sign bit in a code."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def overflow(self) -> int:
        """The code to which numbers above the largest are converted."""
        beyond = self.nan if self.infinity is None else self.infinity
        return self.largest if beyond is None else beyond

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def step(self) -> float:
        """The distance between neighbouring numbers in the subnormal range, below
        `least_normal`."""
        return self.least_normal * 2.0**-self.mantissa_bits

    @property
    def maximum(self) -> float:
        """The largest finite number of the format."""
        exponent, mantissa = divmod(self.largest, 1 << self.mantissa_bits)
        return (1 + mantissa * 2.0**-self.mantissa_bits) * 2.0 ** (exponent - self.bias)


# F8E8M0, an exponent without sign or mantissa, is none of these; BF16 is the upper half of an f32.
FORMATS = {
    DType.F16: FloatFormat(5, 10, 15, largest=0x7BFF, infinity=0x7C00, nan=0x7E00),
    DType.F8E4M3FN: FloatFormat(4, 3, 7, largest=0x7E, nan=0x7F),
    DType.F8E4M3FNUZ: FloatFormat(4, 3, 8, largest=0x7F, nan=0x80, has_negative_zero=False),
    DType.F8E5M2: FloatFormat(5, 2, 15, largest=0x7B, infinity=0x7C, nan=0x7E),
    DType.F8E5M2FNUZ: FloatFormat(5, 2, 16, largest=0x7F, nan=0x80, has_negative_zero=False),
    DType.F6E2M3: FloatFormat(2, 3, 1, largest=0x1F),
    DType.F6E3M2: FloatFormat(3, 2, 3, largest=0x1F),
    DType.F4E2M1: FloatFormat(2, 1, 1, largest=0x7),
}
