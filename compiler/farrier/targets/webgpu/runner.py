"""Measure whole models on the GPU of this machine."""

from __future__ import annotations

from farrier.errors import NoDeviceError
from farrier_device.devices.device import AnyDevice, DeviceError
from farrier_device.devices.driving import DrivingHost
from farrier_device.devices.webgpu import WebGpuDevice
from farrier_device.runners.in_process import InProcessRunner
from farrier_device.webgpu_library import GPU


class WebGpuRunner(InProcessRunner):
    """Runs in this process: the driver of a GPU needs more system calls than the sandbox allows."""

    def __init__(self) -> None:
        super().__init__(_open)

    def name_of(self, device: AnyDevice) -> str:
        return _gpu_of(device).name

    def is_emulated(self, device: AnyDevice) -> bool:
        return _gpu_of(device).is_emulated


def _gpu_of(device: AnyDevice) -> WebGpuDevice:
    assert isinstance(device, DrivingHost)
    gpu = device.device
    assert isinstance(gpu, WebGpuDevice)
    return gpu


def _open() -> DrivingHost[WebGpuDevice]:
    try:
        return DrivingHost(GPU, WebGpuDevice())
    except DeviceError as error:
        raise NoDeviceError(str(error)) from None
