"""The graph passes for CPUs, and the order in which all passes run for CPU targets."""

from farrier.targets.cpu.passes.passes import ORDER, PASSES

__all__ = ["ORDER", "PASSES"]
