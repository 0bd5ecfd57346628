"""Passes from graph to graph, each a pure function in a module of its name; a backend orders
them.
"""

from farrier.passes.passes import PASSES
from farrier.passes.runner import (
    GraphPassRun,
    Listener,
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
    "GraphPassRun",
    "Listener",
    "Settings",
    "finish",
    "layers",
    "opt",
    "optimize",
    "prepare",
    "run_passes",
]
