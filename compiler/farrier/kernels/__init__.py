"""Which schedule each kernel gets, and its machine code, made here and in helper processes."""

from __future__ import annotations

from farrier.kernels.compile import Compiled, Order, lower, lowered
from farrier.kernels.helpers import Helpers, Kernels, helpers_for

__all__ = ["Compiled", "Helpers", "Kernels", "Order", "helpers_for", "lower", "lowered"]
