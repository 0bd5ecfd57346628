"""The placement of a function's allocations: on the stack, in memory shared by all threads, or in a
slice of memory for each thread.

WORKSPACE buffers lie one after another in the workspace argument. LOCAL buffers too large for the
stack lie in the slices argument, at `slices + worker * step`; the caller passes `step` as the size
`SLICE_STEP`. Offsets are multiples of 64.
"""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Extent, Symbol, bounds, ceildiv, maximum
from farrier.ir.expr import MemoryScope
from farrier.ir.loop import Alloc, Function
from farrier.ir.statements import walk_stmts
from farrier.targets.interface import Interface

SHARED = "workspace!"  # Names that no buffer can have.
SLICES = "slices!"
SLICE_STEP = Symbol("slice step!", 0, 1 << 62, 0)

_ALIGNMENT = 64
_STACK_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class WorkspacePlan:
    """The byte offset (or the size, on the stack) of each allocation by buffer name. Allocations of
    the same name in different branches share memory."""

    on_stack: dict[str, int]  # Sizes by name.
    shared: dict[str, Extent]  # Offsets in the workspace argument by name.
    shared_bytes: Extent
    per_worker: dict[str, Extent]  # Offsets in a worker's slice by name.
    slice_bytes: Extent


def plan(function: Function) -> WorkspacePlan:
    """Return the placement of each Alloc of a function."""
    sizes: dict[MemoryScope, dict[str, Extent]] = {MemoryScope.LOCAL: {}, MemoryScope.WORKSPACE: {}}
    for node in walk_stmts(function.body):
        if isinstance(node, Alloc) and node.buffer.scope in sizes:
            largest = sizes[node.buffer.scope]
            nbytes = maximum(function.over_dims(node.buffer.nbytes), 1)
            nbytes = ceildiv(nbytes, _ALIGNMENT) * _ALIGNMENT
            largest[node.buffer.name] = maximum(largest.get(node.buffer.name, 0), nbytes)
    most = {name: bounds(size)[1] for name, size in sizes[MemoryScope.LOCAL].items()}
    large = {n: size for n, size in sizes[MemoryScope.LOCAL].items() if most[n] > _STACK_BYTES}
    on_stack = {name: size for name, size in most.items() if name not in large}
    return WorkspacePlan(on_stack, *_stack_up(sizes[MemoryScope.WORKSPACE]), *_stack_up(large))


def sizes_of(function: Function) -> tuple[Symbol, ...]:
    """Return the symbols whose values the kernel receives in its sizes argument: its dims, and the
    step between slices if the function has slices."""
    return (*function.dims, *((SLICE_STEP,) if plan(function).per_worker else ()))


def _stack_up(sizes: dict[str, Extent]) -> tuple[dict[str, Extent], Extent]:
    offsets: dict[str, Extent] = {}
    end: Extent = 0
    for name, size in sizes.items():
        offsets[name] = end
        end += size
    return offsets, end


def interface(function: Function) -> Interface:
    """Return the interface of a scheduled kernel."""
    needed = plan(function)
    return Interface(
        function.name, function.params, function.dims, needed.shared_bytes, needed.slice_bytes
    )
