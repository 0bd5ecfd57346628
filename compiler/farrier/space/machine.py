"""The machine as the analytic models see it: throughputs in cycles, sizes in bytes.

The figures are those of current x86 cores with the vector width that the target names; what ranks
candidates is their ratio, so they need not be exact for every model of a family.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.target import Target

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """Costs of one core; `memory_bandwidth` is that of all cores together."""

    lanes: int  # f32 elements of a vector register
    registers: int
    threads: int
    l1_bytes: int
    l2_bytes: int
    hertz: float = 3.7e9
    fma_ports: float = 2.0  # vector multiply-adds a cycle
    load_ports: float = 2.0  # vector or scalar loads a cycle
    fma_latency: float = 4.0  # cycles from one multiply-add, or dot product, to the next
    l2_bandwidth: float = 32.0  # bytes a cycle from the second-level cache
    l3_bandwidth: float = 14.0  # bytes a cycle from the last-level cache
    remote_bandwidth: float = 2.0  # bytes a cycle of what another core has just written
    memory_bandwidth: float = 33e9  # bytes a second
    fork_join: float = 0.5e-6  # seconds that a parallel loop costs

    @classmethod
    def of(cls, target: Target, threads: int) -> Machine:
        """The part of `target` that a kernel with `threads` threads has."""
        return cls(target.lanes, target.registers, threads, target.l1_bytes, target.l2_bytes)

    def fits(self, vectors: Ints, points: Ints) -> npt.NDArray[np.bool_]:
        """Whether the sums of tiles of `vectors` vectors by `points` points stay in registers, with
        one step's vectors and a broadcast.

        What is left over is for LLVM, which spills without. Of 16 registers that is as few as one:
        a tile of 12 sums hides the latency that one of 10 does not.
        """
        live = vectors * points + vectors + 1
        return live <= max(self.registers * 15 // 16, 4)

    def bandwidth(self, nbytes: int) -> float:
        """Bytes a cycle at which each core streams through its share of `nbytes`, from the
        second-level cache where that holds it."""
        near = nbytes / self.threads <= 0.7 * self.l2_bytes
        return self.l2_bandwidth if near else self.l3_bandwidth
