"""Derivation: lanes along an axis that fills them.

before:  for i in 4096: for c in 3:       y[i, c] = f(x[i, c])     three of sixteen lanes
after:   for c in 3: for lane in i:       y[i, c] = f(x[i, c])     all of them, at stride 3

The axis whose neighbours lie together comes first, as its vectors are single loads; the estimate
decides what a short vector of it is worth relative to full ones of another axis.
"""

from __future__ import annotations

from farrier.targets.cpu.sketch.access import accesses, store
from farrier.targets.cpu.sketch.nest import Nest

_MOST = 3  # Axes worth trying: more double the space and seldom rank first.


def lane_axes(nest: Nest) -> tuple[int, ...]:
    """Return the axes that lanes may run along, those with most neighbours together first."""
    spatial = len(nest.extents)
    together = [0] * spatial
    reads = accesses(nest.stage, nest.stage.axes, frozenset())
    for total in nest.sums:
        reads += accesses(total, total.all_axes, frozenset())
    for access in (*reads, store(nest.stage)):
        for axis in nest.long_axes:
            together[axis] += int(access.strides[axis] == 1)
    ranked = sorted(nest.long_axes, key=lambda axis: (-together[axis], -axis))
    filled = sorted(ranked, key=lambda axis: -nest.extents[axis])[:1]
    kept = dict.fromkeys([*ranked[: _MOST - 1], *filled])
    return tuple(kept)


def row_axes(nest: Nest) -> tuple[int, ...]:
    """Return the axes that the rows of a tile may run along, the longest first."""
    ranked = sorted(nest.long_axes, key=lambda axis: -nest.extents[axis])
    return tuple(ranked[:_MOST])
