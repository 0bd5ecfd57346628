"""Graph → graph: the passes that suit a graph to CPUs, and the order of all passes for them."""

from farrier.targets.cpu.passes.passes import ORDER, PASSES

__all__ = ["ORDER", "PASSES"]
