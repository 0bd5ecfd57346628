"""Passes from graph to graph, each a pure function in a module of its name; a backend orders
them.
"""

from farrier.passes.passes import PASSES
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
    "PassRun",
    "Settings",
    "finish",
    "layers",
    "opt",
    "optimize",
    "prepare",
    "run_passes",
]
