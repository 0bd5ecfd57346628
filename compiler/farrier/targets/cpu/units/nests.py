"""Transformations of loop nests that several rules share."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.dim import Extent, bounds, typical
from farrier.ir.loop import For, Function
from farrier.ir.statements import walk_stmts
from farrier.schedule import Schedule

_CHUNKS = 8  # The iterations that a thread should be able to choose from, for balance.


def loop_extents(function: Function) -> dict[str, int]:
    """Return the typical extent of every loop, by its variable; 1 for a loop that typically does
    not run."""
    return {loop: max(typical(extent), 1) for loop, extent in exact_extents(function).items()}


def exact_extents(function: Function) -> dict[str, Extent]:
    """Return the extent of every loop, by its variable."""
    return {loop.var: loop.extent for loop in walk_stmts(function.body) if isinstance(loop, For)}


def run_parallel(schedule: Schedule, loops: Sequence[str]) -> None:
    """Share the iterations of `loops`, each directly within the one before, among the threads; from
    the first loop on that cannot be joined, each thread runs the loops whole."""
    schedule.parallel(_join(schedule, _joinable(schedule.function, loops)))


def share(schedule: Schedule, loops: Sequence[str], threads: int) -> None:
    """Run in parallel the fewest of `loops`, outermost first, that balance well."""
    extents = loop_extents(schedule.function)
    count, used = 1, 0
    while used < len(loops) and count < _CHUNKS * threads:
        count *= extents[loops[used]]
        used += 1
    run_parallel(schedule, loops[:used])


def _joinable(function: Function, loops: Sequence[str]) -> Sequence[str]:
    """Return the outermost of `loops` that can be joined. A loop that may be empty is not joined to
    several iterations around it, because their positions would be quotients by its extent."""
    extents = exact_extents(function)
    for used, loop in enumerate(loops):
        if bounds(extents[loop])[0] < 1 and any(extents[other] != 1 for other in loops[:used]):
            return loops[:used]
    return loops


def _join(schedule: Schedule, loops: Sequence[str]) -> str:
    """Fuse loops into one."""
    joined = loops[0]
    for loop in loops[1:]:
        joined = schedule.fuse(joined, loop, f"{joined}_{loop.rpartition('_')[2]}")
    return joined
