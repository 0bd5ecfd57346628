"""Where the Allocs of a function live: on the stack, or in the kernel's workspace argument.

The workspace begins with the WORKSPACE buffers, which all threads share; behind them each worker
has a slice for its LOCAL buffers that are too large for a stack. Offsets are multiples of 64.

Slices lie apart from each other and from what lies before. Loads that walk a slice in large
strides, one a channel, make the processor fetch lines several strides ahead, beyond the end; where
another core has just written those, it has to get each of them back. Slices begin whole steps
apart, so that a worker's is mostly where it was in the kernel before.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Extent, bounds, ceildiv, maximum
from farrier.ir.expr import Scope
from farrier.ir.loop import Alloc, Function
from farrier.ir.statements import walk_stmts

NAME = "workspace!"  # no buffer can have this name

_ALIGNMENT = 64
_STACK_BYTES = 64 << 10
_APART_BYTES = 256 << 10  # what is fetched ahead is not further away: measured on Zen 5
_STEP_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """Bytes by buffer name. Allocs of one name in different branches share their place."""

    on_stack: dict[str, int]  # name -> size
    shared: dict[str, Extent]  # name -> offset in the shared part
    shared_bytes: Extent  # up to the first slice
    per_worker: dict[str, Extent]  # name -> offset in a worker's slice
    slice_bytes: Extent
    slice_step: Extent  # from the start of a worker's slice to that of the next

    @property
    def needed(self) -> bool:
        return bool(self.shared or self.per_worker)


def plan(function: Function) -> WorkspacePlan:
    """Where each Alloc of the function goes."""
    sizes: dict[Scope, dict[str, Extent]] = {Scope.LOCAL: {}, Scope.WORKSPACE: {}}
    for node in walk_stmts(function.body):
        if isinstance(node, Alloc) and node.buffer.scope in sizes:
            largest = sizes[node.buffer.scope]
            nbytes = ceildiv(maximum(node.buffer.nbytes, 1), _ALIGNMENT) * _ALIGNMENT
            largest[node.buffer.name] = maximum(largest.get(node.buffer.name, 0), nbytes)
    most = {name: bounds(size)[1] for name, size in sizes[Scope.LOCAL].items()}
    large = {n: size for n, size in sizes[Scope.LOCAL].items() if most[n] > _STACK_BYTES}
    shared, shared_bytes = _stack_up(sizes[Scope.WORKSPACE])
    per_worker, slice_bytes = _stack_up(large)
    slice_step: Extent = 0
    if large:
        shared_bytes = shared_bytes + _APART_BYTES
        slice_step = ceildiv(slice_bytes + _APART_BYTES, _STEP_BYTES) * _STEP_BYTES
    on_stack = {name: size for name, size in most.items() if name not in large}
    return WorkspacePlan(on_stack, shared, shared_bytes, per_worker, slice_bytes, slice_step)


def workspace_bytes(function: Function, threads: int = 1) -> Extent:
    """Bytes of the workspace argument when run by `threads` threads; 0 where it takes none."""
    made = plan(function)
    return made.shared_bytes + (threads - 1) * made.slice_step + made.slice_bytes


def has_slices(function: Function) -> bool:
    """Whether the workspace argument holds memory of each worker's own."""
    return bool(plan(function).per_worker)


def _stack_up(sizes: dict[str, Extent]) -> tuple[dict[str, Extent], Extent]:
    offsets: dict[str, Extent] = {}
    end: Extent = 0
    for name, size in sizes.items():
        offsets[name] = end
        end += size
    return offsets, end
