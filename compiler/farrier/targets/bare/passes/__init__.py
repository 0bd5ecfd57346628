"""The passes that suit a graph to microcontrollers."""

from farrier.targets.bare.passes.passes import ORDER, PASSES

__all__ = ["ORDER", "PASSES"]
