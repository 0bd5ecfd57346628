"""The interface of a kernel for its callers, independent of its code."""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Extent, Symbol
from farrier.ir.expr import Buffer
from farrier_device.program import HOST


@dataclasses.dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point of a kernel on a device whose threads come in blocks: the kernel's name is
    followed by `suffix`. `blocks` are over the dims."""

    suffix: str
    blocks: Extent
    threads: int  # The number of threads in each block.


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """The arguments of a kernel's entry points: `params`, sizes for the `dims`, scratch memory. The
    bytes are over the dims; 0 means that the argument does not exist. On a host a kernel is one
    entry point; on a device the `entries` run one after the other."""

    name: str
    params: tuple[Buffer, ...]
    dims: tuple[Symbol, ...]
    shared_bytes: Extent  # The scratch memory that the threads share.
    slice_bytes: Extent  # The scratch memory of each thread.
    entries: tuple[EntryPoint, ...] = ()
    space: str = HOST  # The kernel runs in this space, and has its arguments there.
