"""Which schedule each kernel gets, and its machine code, made here and in helper processes."""

from __future__ import annotations

from farrier.kernels.builders import Builders, Built
from farrier.kernels.compile import BuildInput, Compiled, lower, lowered, note_instructions
from farrier.kernels.helpers import Helpers, Kernels, helpers_for

__all__ = [
    "BuildInput",
    "Builders",
    "Built",
    "Compiled",
    "Helpers",
    "Kernels",
    "helpers_for",
    "lower",
    "lowered",
    "note_instructions",
]
