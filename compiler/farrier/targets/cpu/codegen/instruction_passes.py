"""The passes that improve the instructions of a kernel, in order.

    narrow-indices  compute indices in 32 bits
    pair-vectors    bring accesses of neighbouring vectors together

Other optimizations are applied while instructions are created. `Builder` merges equal instructions
of a basic block, and hoists loop-invariant ones into the head of the enclosing scope; a later pass
would first have to create all of them, and unrolled loops repeat most of theirs. For the same
reason `Indices` shares addresses between iterations. `Memory` reuses loads by buffer and index,
since an address alone does not show which stores leave the loaded value unchanged.
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
    """Return the instruction passes for a machine, by name."""
    passes: dict[str, Pass] = {}
    if instructions.index_bits == 32:
        passes["narrow-indices"] = narrow_indices
    if instructions.pair_reach:
        passes["pair-vectors"] = functools.partial(pair_vectors, reach=instructions.pair_reach)
    return passes
