"""The performance figures of a GPU for cost estimates, and the limits that schedules must keep."""

from __future__ import annotations

import dataclasses
import math

from farrier.ir.types import DType


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a launch: the threads of a block, the bytes of workgroup memory, and the number
    of buffers of a kernel. An element in workgroup memory takes at least `element_bytes`. Elements
    of the dtypes `packed` share 32-bit words in device memory, and a thread must write whole words.
    Up to `lanes` neighbouring threads can exchange registers."""

    threads: int
    workgroup_bytes: int
    buffers: int
    element_bytes: int = 1
    packed: frozenset[DType] = frozenset()
    lanes: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A GPU: a number of units (multiprocessors) that each run blocks of threads, in groups (warps)
    of threads in lockstep.

    In each cycle, a unit starts one operation for `lanes` threads. It holds up to `threads` threads
    at once, which share `registers` 32-bit registers and `workgroup_bytes` of memory. Bandwidths
    are in bytes per second: `bandwidth` of the device's memory, and `cache_bandwidth` of the cache
    that all units share. An operation waits `latency` cycles for the result of another one, and
    `memory_latency` cycles for a load; a barrier takes `barrier` cycles. Successive launches start
    at least `launch_s` seconds apart.
    """

    units: int
    clock: float
    lanes: int
    group: int
    threads: int
    registers: int
    workgroup_bytes: int
    bandwidth: float
    cache_bandwidth: float
    latency: int
    memory_latency: int
    barrier: int
    launch_s: float


# A small discrete GPU with round figures, whose schedules suit other GPUs as well. It ranks
# schedules if the device is unknown.
USUAL = Device(
    units=16,
    clock=1.5e9,
    lanes=64,
    group=32,
    threads=1024,
    registers=1 << 16,
    workgroup_bytes=48 << 10,
    bandwidth=2e11,
    cache_bandwidth=8e11,
    latency=6,
    memory_latency=400,
    barrier=40,
    launch_s=5e-6,
)
# WebGPU's default limits, which every adapter has. Its memory consists of words.
_NARROW = frozenset(dtype for dtype in DType if dtype.nbytes < 4)
LEAST = Limits(threads=256, workgroup_bytes=16 << 10, buffers=8, element_bytes=4, packed=_NARROW)


def features(device: Device) -> dict[str, float]:
    """Return the figures of a device, as logarithms, as features of the learned cost model. Their
    names differ from those of a processor's figures, which have other meanings."""
    figures = dataclasses.asdict(device)
    return {f"machine.gpu.{name}": math.log2(1.0 + value) for name, value in figures.items()}
