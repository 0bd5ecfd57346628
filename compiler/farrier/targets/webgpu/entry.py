"""The entry point of a model on the GPU of this machine."""

from __future__ import annotations

from collections.abc import Sequence

from farrier.errors import MemoryLimitError, NoDeviceError
from farrier_device.devices.device import DeviceError
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.interpreted import InterpretedEntry
from farrier_device.program import Program
from farrier_device.webgpu_library import GPU


class WebGpuEntry(InterpretedEntry):
    """A program that drives a GPU, with the failures of the GPU as errors of Farrier."""

    def __init__(self, program: Program, gpu: WebGpuDevice, most_workspace: int | str) -> None:
        super().__init__(program, {GPU: gpu}, most_workspace)
        self._gpu = gpu

    def entry(self, arguments: Sequence[int | None], context: int) -> int:
        try:
            return super().entry(arguments, context)
        except MemoryError as error:
            raise MemoryLimitError(f"on {self._gpu.name}: {error}") from None
        except DeviceError as error:
            raise NoDeviceError(f"{self._gpu.name} failed: {error}") from None
