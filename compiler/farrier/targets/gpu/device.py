"""The figures of a GPU that rules rank schedules by, and the limits that these keep."""

from __future__ import annotations

import dataclasses
import math

from farrier.ir.types import DType


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The largest launch: the threads of a block, the bytes that these share, and the arrays of a
    kernel. An element of shared memory takes `element_bytes` at least. Elements of the types
    `packed` share words of the device's memory, and a thread writes whole words. Up to `lanes`
    neighbouring threads exchange what lies in their registers."""

    threads: int
    workgroup_bytes: int
    buffers: int
    element_bytes: int = 1
    packed: frozenset[DType] = frozenset()
    lanes: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """A GPU: units that each run blocks of threads, in groups that go in lockstep.

    In a cycle a unit begins an operation of `lanes` threads. It holds up to `threads` threads at
    once, with `registers` of 32 bits and `workgroup_bytes` among them. Bandwidths are in bytes a
    second: that of the device's memory, and that of the cache that all units share. An operation
    waits `latency` cycles for the result of another one, and `memory_latency` for a load; the
    threads of a block wait `barrier` cycles for each other. Launches are `launch_s` seconds apart.
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


# A small discrete GPU, by round figures: schedules that suit it fit others as well. It ranks where
# nothing is known of the device.
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
    """Return the figures of a device for the learned model, as logarithms. Their names are not
    those of a processor's figures, which mean other things."""
    figures = dataclasses.asdict(device)
    return {f"machine.gpu.{name}": math.log2(1.0 + value) for name, value in figures.items()}
