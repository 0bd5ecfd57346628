"""Measure on the GPU of NVIDIA of this machine."""

from __future__ import annotations

from farrier.targets.gpu.runner import GpuRunner
from farrier_device.nvidia import find_gpu


class CudaRunner(GpuRunner):
    """A runner for the first GPU of the driver."""

    def __init__(self) -> None:
        super().__init__(find_gpu, "`farrier-device --adapter cuda:NAME` measures where one is")
