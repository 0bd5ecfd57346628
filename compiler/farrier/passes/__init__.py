"""Graph → graph: each pass a pure function in a file of its name; `order.py` is their order."""

from farrier.passes.order import ORDER, PASSES
from farrier.passes.plan_memory import MemoryPlan, plan_memory
from farrier.passes.runner import Listener, PassRun, finish, opt, optimize, prepare, run_passes
from farrier.passes.settings import Settings

__all__ = [
    "ORDER",
    "PASSES",
    "Listener",
    "MemoryPlan",
    "PassRun",
    "Settings",
    "finish",
    "opt",
    "optimize",
    "plan_memory",
    "prepare",
    "run_passes",
]
