"""Measure whole models on the GPU of this machine."""

from __future__ import annotations

from farrier.errors import NoDeviceError
from farrier_device.devices.device import AnyDevice, DeviceError
from farrier_device.devices.webgpu_host import WebGpuHost
from farrier_device.runners.in_process import InProcessRunner


class WebGpuRunner(InProcessRunner):
    """Runs in this process: the driver of a GPU needs more system calls than the sandbox allows."""

    def __init__(self) -> None:
        super().__init__(_open)

    def name_of(self, device: AnyDevice) -> str:
        assert isinstance(device, WebGpuHost)
        return device.gpu.name

    def is_emulated(self, device: AnyDevice) -> bool:
        assert isinstance(device, WebGpuHost)
        return device.gpu.is_emulated


def _open() -> WebGpuHost:
    try:
        return WebGpuHost()
    except DeviceError as error:
        raise NoDeviceError(str(error)) from None
