"""Rules of scatters: updates of windows of a tensor.

XLA ignores an update whose window would extend beyond the tensor. Such windows are redirected to
spare rows after the tensor, which are removed at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from farrier.frontends.stablehlo.ops import bodies
from farrier.frontends.stablehlo.ops.indexing import Positions, batches_of, inverse, number_in
from farrier.frontends.stablehlo.ops.products import numbers_in
from farrier.frontends.stablehlo.scope import Scope
from farrier.frontends.stablehlo.table import hlo
from farrier.ir.dim import Extent
from farrier.ir.types import DType, Shape
from farrier.ops import NotSupported

_REDUCTIONS = {"": "none", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


@hlo("stablehlo.scatter")
def scatter(s: Scope, *operands: str) -> str:
    if len(operands) != 3:
        raise NotSupported("scatter into several tensors")
    x, indices, updates = operands
    text = s.attr("scatter_dimension_numbers").text
    dims, index_axis = numbers_in(text), number_in(text, "index_vector_dim")
    shape, update_shape = s.shape(x), s.shape(updates)
    batching = dims.get("input_batching_dims", [])
    gone = {*dims.get("inserted_window_dims", []), *batching}
    windows = dims.get("update_window_dims", [])
    kept = (axis for axis in range(len(shape)) if axis not in gone)
    at_axis = dict(zip(kept, windows, strict=True))  # The updates' axis of each of the operand's.
    sizes = {
        axis: update_shape[at_axis[axis]] if axis in at_axis else 1 for axis in range(len(shape))
    }
    positions = Positions(s, indices, index_axis, dims.get("scatter_dims_to_operand_dims", []))
    addressed = positions.axes
    along = batches_of(dims, "scatter_indices_batching_dims", index_axis)
    positions.add_batches(list(zip(batching, along, strict=True)))
    taken = sorted({*positions.axes, *(a for a in sizes if sizes[a] != shape[a])}) or [0]
    axes = [*taken, *(axis for axis in range(len(shape)) if axis not in taken)]
    heads = [at for at in range(len(update_shape)) if at not in windows]
    order = [*heads, *(at_axis[axis] for axis in axes if axis in at_axis)]
    moved = s.reshape(
        s.transpose(updates, order), [*positions.batches, *(sizes[axis] for axis in axes)]
    )
    rows = s.transpose(x, axes)
    if not _all_within(s, positions, addressed, sizes, shape):
        rows = _with_spare(s, rows, positions, (addressed, taken), sizes, shape)
    grid = positions.windows(taken, sizes)
    written = s.node("ScatterND", rows, grid, moved, reduction=_REDUCTIONS[_body(s)])
    if s.shape(rows)[0] != shape[taken[0]]:
        written = s.slice(written, 0, 0, shape[taken[0]])
    return s.transpose(written, inverse(axes))


def _body(s: Scope) -> str:
    """Return the name of the operation that combines the old element and the update, or "" if the
    update replaces the element."""
    [region] = s.operation.regions
    (old, _, _), (new, _, _) = region.arguments
    body = bodies.combined_by(s, region, old, new, region.returned[0])
    if body not in _REDUCTIONS:
        raise bodies.unknown(s, region)
    return body


def _all_within(
    s: Scope,
    positions: Positions,
    axes: Sequence[int],
    sizes: Mapping[int, Extent],
    shape: Shape,
) -> bool:
    """Check whether all windows lie within the tensor. Return False if this is not known when
    compiling."""
    for axis in axes:
        data, last = s.b.data(positions[axis]), shape[axis] - sizes[axis]
        if data is None or not isinstance(last, int) or data.dtype == object:
            return False
        if np.any(data < 0) or np.any(data > last):
            return False
    return True


def _with_spare(
    s: Scope,
    rows: str,
    positions: Positions,
    axes: tuple[Sequence[int], Sequence[int]],
    sizes: Mapping[int, Extent],
    shape: Shape,
) -> str:
    """Return the tensor `rows` with spare rows appended, and redirect each window that would extend
    beyond the tensor to these rows, by changing `positions`. `axes` is a pair: the indexed axes,
    and the axes that were moved to the front."""
    addressed, taken = axes
    first = taken[0]
    zero = s.scalar(0, DType.I64)
    is_within = s.b.constant(np.array(True))
    for axis in addressed:
        start = positions[axis]
        last = s.node("Reshape", [shape[axis] - sizes[axis]], s.ints([]))
        for each in (s.node("GreaterOrEqual", start, zero), s.node("LessOrEqual", start, last)):
            is_within = s.node("And", is_within, each)
    for axis in {*addressed, first}:
        outside = s.node("Reshape", [shape[axis]], s.ints([])) if axis == first else zero
        positions.set(axis, s.node("Where", is_within, positions[axis], outside))
    spare = [sizes[first], *s.shape(rows)[1:]]
    blank = s.cast(s.scalar(0, DType.I32), s.dtype(rows))
    return s.concat([rows, s.expand(s.reshape(blank, [1] * len(spare)), spare)], 0)
