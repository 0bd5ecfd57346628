"""The runner that measures on this machine's GPU through WebGPU."""

from __future__ import annotations

from farrier.targets.gpu.runner import GpuRunner
from farrier_device.adapters import find_adapter


class WebGpuRunner(GpuRunner):
    """A runner for the first adapter that WebGPU reports."""

    def __init__(self) -> None:
        super().__init__(find_adapter)
