"""The machine as the analytic models see it: throughputs in cycles, sizes in bytes.

The figures were measured (docs/performance.md), in virtual machines of two cores: those of an AMD
Zen 5 hold for whatever has no figures of its own. What ranks candidates is their ratio, so they
need not be exact for every model of a family.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from farrier.ir.types import DType
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
    l3_bytes: int
    hertz: float = 3.7e9
    fma_ports: float = 2.0  # vector multiply-adds a cycle
    load_ports: float = 2.0  # vector or scalar loads a cycle
    issue: float = 8.0  # instructions a cycle
    fma_latency: float = 4.0  # cycles from one multiply-add, or dot product, to the next
    l2_bandwidth: float = 32.0  # bytes a cycle from the second-level cache
    l3_bandwidth: float = 14.0  # bytes a cycle from the last-level cache
    shared_bandwidth: float = 14.0  # bytes a cycle of what another core reads as well
    miss: float = 0.0  # cycles that show of each scattered line beyond the first-level cache
    remote_bandwidth: float = 2.0  # bytes a cycle of what another core has just written
    memory_bandwidth: float = 33e9  # bytes a second
    unroll: int = 4  # steps of a sum in one iteration, at most
    exposed: float = 0.35  # of the time of memory traffic, what arithmetic does not hide
    fork_join: float = 0.5e-6  # seconds that a parallel loop costs
    fused: bool = True  # whether one instruction multiplies floats and adds

    @classmethod
    def of(cls, target: Target, threads: int) -> Machine:
        """The part of `target` that a kernel with `threads` threads has."""
        known = _MEASURED.get(target.tune, {})
        caches = target.l1_bytes, target.l2_bytes, target.l3_bytes
        sizes = target.lanes, target.registers, threads, *caches
        return cls(*sizes, fused="fma" in target.required_features, **known)

    def fits(self, vectors: Ints, points: Ints, dtype: DType = DType.F32) -> npt.NDArray[np.bool_]:
        """Whether the sums of `dtype` of tiles of `vectors` vectors by `points` points stay in
        registers, with one step's vectors and a broadcast.

        What is left over is for LLVM, which spills without: two of 32 registers, one of 16, tiles
        of 12 sums hiding the latency that those of 10 do not. Squarer tiles need not even that, 3
        by 4 of 16, unless a product takes a register before it is added; of one vector LLVM makes
        the sums in the registers of the broadcasts, which takes one more.
        """
        live = vectors * points + vectors + 1
        fits = live <= max(self.registers * 15 // 16, 4)
        if self.registers <= 16 and self.fused and dtype.is_float:
            fits |= (live <= self.registers) & (vectors > 1) & (vectors <= points)
        return fits

    def bandwidth(self, nbytes: int) -> float:
        """Bytes a cycle at which each core streams through its share of `nbytes`, from the
        second-level cache where that holds it."""
        near = nbytes / self.threads <= 0.7 * self.l2_bytes
        return self.l2_bandwidth if near else self.l3_bandwidth


# Where figures differ from Zen 5's, by LLVM's name of the microarchitecture.
_MEASURED: dict[str, dict[str, Any]] = {
    # A core of a virtual machine is a hyperthread here. The other one of its core, a stranger's,
    # leaves between 2.4 of 6 instructions a cycle and all, so tiles with few loads win; it leaves
    # multiply-adds in registers alone.
    "sapphirerapids": {
        "hertz": 2.2e9,
        "issue": 3.0,
        "l2_bandwidth": 26.0,
        "l3_bandwidth": 9.0,
        "shared_bandwidth": 30.0,
        "remote_bandwidth": 3.0,
        "miss": 3.0,
        "memory_bandwidth": 20e9,
        "exposed": 0.7,
        "unroll": 8,
    },
    # Of 6 instructions a cycle the other hyperthread, a stranger's, leaves between 3.5 and all, and
    # of 2 loads of a vector between 1.6 and all.
    "znver3": {
        "hertz": 3.2e9,
        "issue": 4.0,
        "load_ports": 1.75,
        "l2_bandwidth": 30.0,
        "l3_bandwidth": 18.0,
        "shared_bandwidth": 18.0,
        "remote_bandwidth": 4.4,
        "miss": 3.0,
        "memory_bandwidth": 36e9,
        "exposed": 0.7,
        "unroll": 8,
    },
}
