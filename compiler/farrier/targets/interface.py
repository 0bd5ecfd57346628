"""The interface that a kernel has for its callers, independent of its generated code."""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Extent, Symbol
from farrier.ir.expr import Buffer
from farrier_device.program import HOST


@dataclasses.dataclass(frozen=True, slots=True)
class EntryPoint:
    """One launch of a kernel on a device that runs threads in blocks. The symbol is the kernel's
    name followed by `suffix`. `blocks`, the numbers of blocks, may depend on the dims."""

    suffix: str
    blocks: Extent
    threads: int  # The number of threads in each block.


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """The arguments of a kernel's entry points: the tensors `params`, the sizes of the `dims`, and
    scratch memory. The byte counts may depend on the dims; 0 means that the kernel has no such
    argument. A kernel for a host has a single entry point; the `entries` of a kernel for a device
    run in sequence."""

    name: str
    params: tuple[Buffer, ...]
    dims: tuple[Symbol, ...]
    shared_bytes: Extent  # The scratch memory that the threads share.
    slice_bytes: Extent  # The scratch memory of each thread.
    entries: tuple[EntryPoint, ...] = ()
    space: str = HOST  # The memory space in which the kernel runs and its arguments lie.
