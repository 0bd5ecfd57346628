"""Schedule transformations of loop nests that several rules use."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.ir.dim import Extent, bounds, typical
from farrier.ir.loop import For, Function
from farrier.ir.statements import walk_stmts
from farrier.schedule import Schedule

_CHUNKS = 8  # The iterations that a thread should be able to choose from, for balance.


def loop_extents(function: Function) -> dict[str, int]:
    """Return the typical extent of every loop, by its variable; 1 for a loop that typically has no
    iterations."""
    return {loop: max(typical(extent), 1) for loop, extent in exact_extents(function).items()}


def exact_extents(function: Function) -> dict[str, Extent]:
    """Return the extent of every loop, by its variable. A dynamic extent is a symbolic
    expression."""
    return {loop.var: loop.extent for loop in walk_stmts(function.body) if isinstance(loop, For)}


def run_parallel(schedule: Schedule, loops: Sequence[str]) -> None:
    """Fuse the perfectly nested `loops` into a single parallel loop. If some loop cannot be fused
    with the loops around it, only these are fused; the loop itself and the loops inside it stay
    sequential."""
    schedule.parallel(_join(schedule, _joinable(schedule.function, loops)))


def share(schedule: Schedule, loops: Sequence[str], threads: int) -> None:
    """Parallelize the smallest number of `loops`, outermost first, whose iterations divide evenly
    enough among the threads."""
    extents = loop_extents(schedule.function)
    count, used = 1, 0
    while used < len(loops) and count < _CHUNKS * threads:
        count *= extents[loops[used]]
        used += 1
    run_parallel(schedule, loops[:used])


def _joinable(function: Function, loops: Sequence[str]) -> Sequence[str]:
    """Return the longest prefix of `loops` (outermost first) that can be fused into one loop. A
    loop that may have no iterations is not fused with loops around it, because the fused loop would
    compute indices by division by its extent."""
    extents = exact_extents(function)
    for used, loop in enumerate(loops):
        if bounds(extents[loop])[0] < 1 and any(extents[other] != 1 for other in loops[:used]):
            return loops[:used]
    return loops


def _join(schedule: Schedule, loops: Sequence[str]) -> str:
    """Fuse loops into one, and return its name."""
    joined = loops[0]
    for loop in loops[1:]:
        joined = schedule.fuse(joined, loop, f"{joined}_{loop.rpartition('_')[2]}")
    return joined
