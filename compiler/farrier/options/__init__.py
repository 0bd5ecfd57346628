"""The options of a compilation, the same in Python, on the command line and over REST."""

from __future__ import annotations

from farrier.options.options import (
    MAX_CORES,
    MAX_LAYER_ERROR,
    MAX_THREADS,
    TYPICAL_ALONE,
    CompileOptions,
    parse_budget,
)

__all__ = [
    "MAX_CORES",
    "MAX_LAYER_ERROR",
    "MAX_THREADS",
    "TYPICAL_ALONE",
    "CompileOptions",
    "parse_budget",
]
