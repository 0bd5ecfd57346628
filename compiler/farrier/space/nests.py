"""What several rules do to loop nests."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.dim import bounds, typical
from farrier.ir.loop import For, Function
from farrier.ir.walk import walk
from farrier.schedule import Schedule

_CHUNKS = 8  # iterations a thread should have to choose from, for balance


def loop_extents(function: Function) -> dict[str, int]:
    """The typical extent of every loop, by its variable; 1 of one that typically does not run."""
    loops = (loop for loop in walk(function.body) if isinstance(loop, For))
    return {loop.var: max(typical(loop.extent), 1) for loop in loops}


def join(schedule: Schedule, loops: Sequence[str]) -> str:
    """Fuses loops that stand directly within one another, outermost first, into one."""
    joined = loops[0]
    for loop in loops[1:]:
        joined = schedule.fuse(joined, loop, f"{joined}_{loop.rpartition('_')[2]}")
    return joined


def share(schedule: Schedule, loops: Sequence[str], threads: int) -> None:
    """Runs in parallel the fewest of `loops`, outermost first, that balance well. What may be empty
    is not joined to loops around it: their positions would be quotients by its extent."""
    extents = loop_extents(schedule.function)
    may_be_empty = {
        loop.var
        for loop in walk(schedule.function.body)
        if isinstance(loop, For) and bounds(loop.extent)[0] < 1
    }
    count = 1
    for used, loop in enumerate(loops, start=1):
        count *= extents[loop]
        inner = loops[used : used + 1]
        if count >= _CHUNKS * threads or not inner or inner[0] in may_be_empty:
            schedule.parallel(join(schedule, loops[:used]))
            return
