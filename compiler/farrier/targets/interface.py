"""What there is to know of a kernel for whoever calls it, without how it computes."""

from __future__ import annotations

import dataclasses

from farrier.ir.dim import Extent, Symbol
from farrier.ir.expr import Buffer


@dataclasses.dataclass(frozen=True, slots=True)
class Interface:
    """The arguments of a kernel's entry point: `params`, sizes for the `dims`, scratch memory. The
    bytes are over the dims; 0 says that there is no such argument."""

    name: str
    params: tuple[Buffer, ...]
    dims: tuple[Symbol, ...]
    shared_bytes: Extent  # scratch memory that the threads share
    slice_bytes: Extent  # and of each thread
