"""The first half of the kernel compiler for CPUs: it lowers scheduled loops to final loops, which
code generation translates without further changes to their structure.

A kernel goes through these passes in this order, each implemented by a file of `farrier.lower`:

    merge-halos             the parallel loop that writes an output writes the zeros around it
    partition-loops         indices are canonical, and guards stand outside of hot loops
    eliminate-dead-stores   sums of nothing and fills that nothing reads are gone
    lengthen-short-loops    loops that do little take several steps an iteration

The partitioning pass simplifies each branch with the conditions under which the branch runs. Parts
of the pass have files of their own: guards (`guards`), guards on the variable of an inner loop
(`inner_loops`), copies of loops and their bounds (`copies`), rarely executed copies without the
statements that they never reach (`pruning`), tails of unknown length in narrower tiles
(`narrow_tiles`), tiles of which an iteration uses a part (`partial_tiles`), and tiles that are
always computed completely (`whole_tiles`).

Each pass first checks cheaply if there is anything to change: zero borders among statements that
are not loops, symbols among the sizes. If not, it returns its argument.
"""

from __future__ import annotations

ORDER: tuple[str, ...] = (
    "merge-halos",
    "partition-loops",
    "eliminate-dead-stores",
    "lengthen-short-loops",
)


def loop_passes(*, counts_loops: bool) -> tuple[str, ...]:
    """Return the names of the loop passes for a machine. `counts_loops` is true for narrow and
    in-order cores, on which the increment and branch at the end of an iteration take time of their
    own."""
    return ORDER if counts_loops else ORDER[:-1]
