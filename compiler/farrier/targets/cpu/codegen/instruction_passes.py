"""The passes on the instructions of a kernel, in order.

    narrow-indices  compute indices in 32 bits
    pair-vectors    bring accesses of neighbouring vectors together

The rest is done when an instruction is made. `Builder` merges the equal ones of a basic block, and
hoists the invariant ones into the head of the scope around their loop: a pass would have to make
all of them first, and unrolled loops repeat most of theirs. For the same reason `Indices` shares
addresses between iterations. `Memory` remembers loads by buffer and index, as an address alone does
not show which stores leave it unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeAlias

from farrier.ir.instr import Function
from farrier.targets.cpu.codegen.narrow_indices import narrow_indices
from farrier.targets.cpu.codegen.pair_vectors import pair_vectors
from farrier.targets.llvm.builder import Instructions

Pass: TypeAlias = Callable[[Function], Function]


def instruction_passes(instructions: Instructions) -> Mapping[str, Pass]:
    """Return the passes for a machine by their names."""
    passes: dict[str, Pass] = {}
    if instructions.index_bits == 32:
        passes["narrow-indices"] = narrow_indices
    if instructions.pair_reach:
        passes["pair-vectors"] = functools.partial(pair_vectors, reach=instructions.pair_reach)
    return passes
