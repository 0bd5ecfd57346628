"""The first half of the kernel compiler for CPUs: it lowers scheduled loops to final loops, which
code generation translates without further changes to their structure.

A kernel goes through these passes in this order, each implemented by a file of `farrier.lower`:

    merge-halos             let the loop that writes an output also write its border of zeros
    partition-loops         split loops so that hot copies contain no guards; simplify indices
    eliminate-dead-stores   remove empty sums, and stores to buffers that are not read
    lengthen-short-loops    unroll loops with little work in an iteration

The partitioning pass simplifies each branch with the conditions under which the branch runs. These
parts of the pass have files of their own:

    guards          guards that do not depend on the innermost loops
    inner_loops     guards on the variable of an inner loop
    copies          the copies of a loop and their bounds
    pruning         the removal of statements that a rarely executed copy never reaches
    narrow_tiles    tails of unknown length, which are computed in narrower tiles
    partial_tiles   tiles of which an iteration uses only a part
    whole_tiles     tiles that are always computed completely

Each pass first checks cheaply if there is anything to change, such as a border of zeros or a
symbolic size. If not, it returns its argument.
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
