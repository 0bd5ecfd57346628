"""Graph → graph: each pass a pure function in a file of its name; a backend orders them."""

from farrier.passes.passes import PASSES
from farrier.passes.plan_memory import MemoryPlan, plan_memory
from farrier.passes.runner import (
    Listener,
    PassRun,
    finish,
    layers,
    opt,
    optimize,
    prepare,
    run_passes,
)
from farrier.passes.settings import Settings

__all__ = [
    "PASSES",
    "Listener",
    "MemoryPlan",
    "PassRun",
    "Settings",
    "finish",
    "layers",
    "opt",
    "optimize",
    "plan_memory",
    "prepare",
    "run_passes",
]
