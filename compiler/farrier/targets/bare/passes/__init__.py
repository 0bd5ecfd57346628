"""The graph passes for microcontrollers."""

from farrier.targets.bare.passes.passes import ORDER, PASSES

__all__ = ["ORDER", "PASSES"]
