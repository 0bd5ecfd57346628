"""Scheduled function → function ready for code generation."""

from __future__ import annotations

import dataclasses

from farrier.ir.loop import Function
from farrier.lower.specialize import specialize


def finalize(function: Function) -> Function:
    """The function with canonical indices and its tails apart from its hot loops."""
    return dataclasses.replace(function, body=specialize(function.body))
