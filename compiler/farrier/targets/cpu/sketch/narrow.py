"""Derivation: vectorize along an axis that is long enough to fill the lanes, even if elements along
it are not adjacent.

before:  for i in 4096: for c in 3:       y[i, c] = f(x[i, c])     three of sixteen lanes
after:   for c in 3: for lane in i:       y[i, c] = f(x[i, c])     all of them, at stride 3

An axis with adjacent elements is preferred, as its vectors are single loads. The cost estimate
weighs short vectors along that axis against full vectors along another.
"""

from __future__ import annotations

from farrier.targets.cpu.sketch.access import accesses, store
from farrier.targets.cpu.sketch.nest import Nest

_MOST = 3  # The number of axes to try; more would double the space and are seldom best.


def lane_axes(nest: Nest) -> tuple[int, ...]:
    """Return the candidate axes for vector lanes, first the axes along which most accesses are
    contiguous."""
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
    """Return the candidate axes for the rows of a tile, longest first."""
    ranked = sorted(nest.long_axes, key=lambda axis: -nest.extents[axis])
    return tuple(ranked[:_MOST])
