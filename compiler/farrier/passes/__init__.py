"""Graph → graph: each pass a pure function in a file of its name; `order.py` is their order."""

from farrier.passes.order import ORDER, PASSES
from farrier.passes.plan_memory import MemoryPlan, plan_memory
from farrier.passes.runner import Listener, PassRun, opt, optimize, run_passes

__all__ = [
    "ORDER",
    "PASSES",
    "Listener",
    "MemoryPlan",
    "PassRun",
    "opt",
    "optimize",
    "plan_memory",
    "run_passes",
]
