"""Loop functions as code generation takes them, for tests of what comes before and after."""

from __future__ import annotations

from farrier.ir.loop import Function
from farrier.lower.runner import run_loop_passes
from farrier.space import Decisions, Space
from farrier.targets import Target
from farrier.targets.cpu.lowering import loop_passes


def finalize(function: Function, target: Target | None = None) -> Function:
    """The final loops for a target; without one, for a CPU with no special passes."""
    names = loop_passes(counts_loops=False)
    if target is not None:
        names = target.backend.loop_passes(target)
    return run_loop_passes(function, names)


def final_loops(space: Space, decisions: Decisions, target: Target | None = None) -> Function:
    """The final loops of a candidate."""
    return finalize(space.schedule(decisions).function, target)
