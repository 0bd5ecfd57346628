"""The named GPUs for WebGPU, with figures that are published or derived from published ones.

A name is `webgpu:` followed by the GPU. Code for a named GPU keeps WebGPU's default limits like
code for any adapter; the figures rank schedules, and bound a roofline. An unpublished bandwidth is
computed as memory data rate times bus width. The sizes of lockstep groups, caches and workgroup
memories are estimates, and so are Adreno's lanes, which are derived from its peak rate.
"""

from __future__ import annotations

import dataclasses

from farrier.targets.describing import KnownMachine
from farrier.targets.gpu import figures as gpu
from farrier_device.describe import MachineDescription
from farrier_device.webgpu_library import F16

_K, _M, _G = 1 << 10, 1 << 20, 1 << 30
_F16 = (F16,)
_SHARED = 16 << 10  # WebGPU's default limit: the memory that the threads of a block share.


@dataclasses.dataclass(frozen=True, slots=True)
class Figures(gpu.Figures):
    """The figures of a GPU, and the features of its adapter."""

    features: tuple[str, ...] = _F16
    host: str = ""  # The named machine that contains the GPU, if any.

    def described(self) -> KnownMachine:
        """Return the GPU as a known machine."""
        description = MachineDescription(
            arch="webgpu",
            cpu=self.cpu,
            features=self.features,
            cores=self.units,
            l1_bytes=_SHARED,
            l2_bytes=self.l2_bytes,
            l3_bytes=0,
            memory_bytes=self.memory_bytes,
            host=self.host,
        )
        return KnownMachine(description, self.source)


FIGURES = {
    "webgpu:iris-xe": Figures(
        *("Intel(R) Iris(R) Xe Graphics", 6, 128, 1.35e9, 16, 68.3e9, 3840 * _K, 16 * _G),
        "Intel, Core i7-1185G7 product specifications: 96 execution units of 8 lanes, LPDDR4X-4267",
    ),
    "webgpu:radeon-780m": Figures(
        *("AMD Radeon 780M", 12, 64, 2.7e9, 32, 120e9, 2 * _M, 16 * _G),
        "AMD, Ryzen 7 7840U product specifications: 12 compute units, 2.7 GHz, LPDDR5X-7500",
    ),
    "webgpu:rtx-3090": Figures(
        *("NVIDIA GeForce RTX 3090", 82, 128, 1.695e9, 32, 936e9, 6 * _M, 24 * _G),
        "NVIDIA, Ampere GA102 GPU Architecture whitepaper: 82 multiprocessors of 128 lanes",
    ),
    "webgpu:rx-7900-xtx": Figures(
        *("AMD Radeon RX 7900 XTX", 96, 128, 2.5e9, 32, 960e9, 6 * _M, 24 * _G),
        "AMD, Radeon RX 7900 XTX product specifications: 61 TFLOPS, two operations begun at once",
    ),
    "webgpu:m1": Figures(
        *("Apple M1", 8, 128, 1.278e9, 32, 68.2e9, _M, 8 * _G),
        "Philip Turner, metal-benchmarks: 8 cores of 128 lanes; Apple, M1: 2.6 TFLOPS, 68 GB/s",
    ),
    "webgpu:adreno-640": Figures(
        *("Adreno (TM) 640", 2, 384, 585e6, 64, 34.1e9, _M, 6 * _G),
        "notebookcheck.net, Adreno 640: 585 MHz; nanoreview.net, Snapdragon 855: peak, 34.1 GB/s",
        features=(),
    ),
    "webgpu:mali-g610": Figures(
        *("Mali-G610", 4, 64, 1e9, 16, 33.8e9, 512 * _K, 8 * _G),
        "Arm, GPU datasheet: Mali-G610; Rockchip, RK3588 datasheet: 4 cores, 1 GHz, LPDDR4X",
    ),
    "webgpu:videocore7": Figures(
        *("V3D 7.1", 16, 4, 800e6, 16, 17.1e9, 512 * _K, 8 * _G),
        "Raspberry Pi, BCM2712: 800 MHz, LPDDR4X-4267; sci-pi.org.uk: 16 processors of 4 lanes",
        features=(),
        host="rpi5",
    ),
}
MACHINES = {name: figures.described() for name, figures in FIGURES.items()}


def figures_of(cpu: str) -> Figures | None:
    """Return the figures of the GPU that an adapter's name contains; None if it is not in the
    table. A driver may append its own name to the GPU's."""
    named = [each for each in FIGURES.values() if cpu.startswith(each.cpu)]
    return max(named, key=lambda each: len(each.cpu), default=None)
