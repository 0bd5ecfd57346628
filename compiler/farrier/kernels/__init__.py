"""Which schedule each kernel gets, and its machine code, made here and in helper processes."""

from __future__ import annotations

from farrier.kernels.helpers import Compiled, Helpers, Kernels, Order, helpers_for

__all__ = ["Compiled", "Helpers", "Kernels", "Order", "helpers_for"]
