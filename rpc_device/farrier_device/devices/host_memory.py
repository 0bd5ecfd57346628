"""Base classes of devices that use the host's memory, or that are timed by the host's clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from farrier_device.blob import Blob
from farrier_device.devices.device import Device, DeviceError, Ticks
from farrier_device.memory import Buffer, aligned_buffer

M = TypeVar("M")
B = TypeVar("B")


class WallClocked(Device[M, B], Generic[M, B]):
    """A device timed by the host's clock, from the start of a launch until `synchronize`
    returns."""

    def time(self, steps: Sequence[B], repeats: int, cold: Sequence[tuple[M, int]]) -> Ticks:
        ticks: Ticks = [[] for _ in steps]
        for _ in range(repeats):
            for step, samples in zip(steps, ticks, strict=True):
                begin = time.perf_counter_ns()
                self.launch(step)
                if code := self.synchronize():
                    raise DeviceError(f"returned code {code}")
                samples.append(time.perf_counter_ns() - begin)
        return ticks

    def ns_of(self, ticks: Sequence[int]) -> list[int]:
        return [max(1, tick) for tick in ticks]


class HostMemory(Device[Buffer, B], Generic[B]):
    """A device whose memory is the host's, so that copies are complete when they return."""

    def allocate(self, nbytes: int, position: int) -> Buffer:
        return aligned_buffer(nbytes)

    def clear(self, memory: Buffer, nbytes: int) -> None:
        memory.zero(nbytes)

    def copy_in(self, memory: Buffer, blob: Blob) -> None:
        blob.read_into(memory.view[: blob.nbytes])

    def copy_out(self, memory: Buffer, nbytes: int) -> memoryview:
        return memory.view[:nbytes]

    def send(self, source: memoryview, memory: Buffer, offset: int) -> None:
        memory.view[offset : offset + len(source)] = source

    def receive(self, memory: Buffer, offset: int, target: memoryview) -> None:
        target[:] = memory.view[offset : offset + len(target)]
