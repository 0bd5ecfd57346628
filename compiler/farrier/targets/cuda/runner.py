"""The runner that measures on this machine's NVIDIA GPU."""

from __future__ import annotations

from farrier.targets.gpu.runner import GpuRunner
from farrier_device.nvidia import find_gpu


class CudaRunner(GpuRunner):
    """A runner for the first GPU that the driver reports."""

    def __init__(self) -> None:
        super().__init__(find_gpu, "`farrier-device --adapter cuda:NAME` measures where one is")
