"""The kernel compiler of a CPU, its first half: from scheduled loops to final loops.

A kernel goes through these passes in this order, each a file of `farrier.lower`. Code generation
takes it from there, and no longer changes loops.

    merge-halos             the parallel loop that writes an output writes the zeros around it
    partition-loops         indices are canonical, and guards stand outside of hot loops
    eliminate-dead-stores   sums of nothing and fills that nothing reads are gone
    lengthen-short-loops    loops that do little take several steps an iteration

Partitioning simplifies, because every branch that it makes knows more than the loops say. The ideas
in it have files of their own: guards (`guards`), guards that a loop further in decides
(`inner_loops`), copies and their bounds (`copies`), cold copies without the code that they do not
run (`pruning`), tails of unknown length in narrower tiles (`narrow_tiles`), tiles that one
iteration uses in part (`partial_tiles`), and tiles that are computed whole (`whole_tiles`).

A pass asks first, at little cost, for what it changes: halos among statements that are not loops,
symbols among the sizes. If nothing changes, it returns its argument.
"""

from __future__ import annotations

ORDER: tuple[str, ...] = (
    "merge-halos",
    "partition-loops",
    "eliminate-dead-stores",
    "lengthen-short-loops",
)


def loop_passes(*, counts_loops: bool) -> tuple[str, ...]:
    """Return the passes for a machine. `counts_loops` says that the instructions at the end of an
    iteration take time of their own, as on narrow and in-order cores."""
    return ORDER if counts_loops else ORDER[:-1]
