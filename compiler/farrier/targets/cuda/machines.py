"""The named NVIDIA GPUs, and the architectures, each with the figures of a GPU.

A name is `cuda:` followed by the GPU. Code for a GPU is generated for its architecture; for an
architecture without a GPU's name, the figures of a representative GPU rank schedules. Clocks are
boost clocks. Sources marked "from memory" were not available when the table was written.
"""

from __future__ import annotations

import dataclasses

from farrier.targets.cuda.architectures import ARCH, ARCHITECTURES, architecture_of
from farrier.targets.describing import KnownMachine
from farrier.targets.gpu import figures as gpu
from farrier.targets.gpu.device import Device
from farrier_device.describe import MachineDescription

_M, _G = 1 << 20, 1 << 30
_WARP = 32  # Threads in lockstep, of all architectures.


@dataclasses.dataclass(frozen=True, slots=True)
class Figures(gpu.Figures):
    """The figures of a GPU, and the architecture of its code."""

    architecture: str
    host: str = ""  # The named machine that contains the GPU, if any.

    def device(self) -> Device:
        """Return the GPU as a Device for cost estimates."""
        has = ARCHITECTURES[self.architecture]
        usual = gpu.Figures.device(self)
        return dataclasses.replace(usual, threads=has.threads, workgroup_bytes=has.shared_bytes)

    def described(self) -> MachineDescription:
        """Return the GPU as a machine description."""
        return MachineDescription(
            arch=ARCH,
            cpu=self.cpu,
            features=(self.architecture,),
            cores=self.units,
            l1_bytes=ARCHITECTURES[self.architecture].shared_bytes,
            l2_bytes=self.l2_bytes,
            l3_bytes=0,
            memory_bytes=self.memory_bytes,
            host=self.host,
        )


def _gpu(
    cpu: str,
    units: int,
    lanes: int,
    clock: float,
    bandwidth: float,
    l2_bytes: int,
    memory_bytes: int,
    architecture: str,
    source: str,
) -> Figures:
    return Figures(
        cpu, units, lanes, clock, _WARP, bandwidth, l2_bytes, memory_bytes, source, architecture
    )


FIGURES = {
    "cuda:t4": _gpu(
        *("Tesla T4", 40, 64, 1.59e9, 320e9, 4 * _M, 16 * _G, "sm_75"),
        "sysrqmts.com, Tesla T4: 40 multiprocessors, 1590 MHz, 320 GB/s, 4 MB of L2; NVIDIA, "
        "Turing whitepaper, from memory: 64 lanes",
    ),
    "cuda:a10": _gpu(
        *("NVIDIA A10", 72, 128, 1.695e9, 600e9, 6 * _M, 24 * _G, "sm_86"),
        "NVIDIA, A10 datasheet, from memory: 31.2 TFLOPS, 600 GB/s; 9216 lanes in 72 units",
    ),
    "cuda:a100": _gpu(
        *("NVIDIA A100", 108, 64, 1.41e9, 1555e9, 40 * _M, 40 * _G, "sm_80"),
        "NVIDIA, A100 architecture whitepaper, from memory: 108 units of 64 lanes, 1410 MHz, "
        "1555 GB/s with 40 GB; 19.5 TFLOPS",
    ),
    "cuda:rtx-3090": _gpu(
        *("NVIDIA GeForce RTX 3090", 82, 128, 1.695e9, 936e9, 6 * _M, 24 * _G, "sm_86"),
        "NVIDIA, Ampere GA102 GPU Architecture whitepaper: 82 multiprocessors of 128 lanes, "
        "1695 MHz, 936 GB/s",
    ),
    "cuda:rtx-4090": _gpu(
        *("NVIDIA GeForce RTX 4090", 128, 128, 2.52e9, 1008e9, 72 * _M, 24 * _G, "sm_89"),
        "NVIDIA, Ada GPU Architecture whitepaper, from memory: 128 units of 128 lanes, 2520 MHz, "
        "1008 GB/s, 72 MB of L2",
    ),
    "cuda:l4": _gpu(
        *("NVIDIA L4", 58, 128, 2.04e9, 300e9, 48 * _M, 24 * _G, "sm_89"),
        "NVIDIA, L4 datasheet, from memory: 30.3 TFLOPS, 300 GB/s; 7424 lanes in 58 units",
    ),
    "cuda:h100": _gpu(
        *("NVIDIA H100", 132, 128, 1.98e9, 3350e9, 50 * _M, 80 * _G, "sm_90a"),
        "NVIDIA, H100 SXM5: 3.35 TB/s, as openmetal.io states; H100 architecture whitepaper, from "
        "memory: 132 units of 128 lanes, 67 TFLOPS, 50 MB of L2",
    ),
    "cuda:h200": _gpu(
        *("NVIDIA H200", 132, 128, 1.98e9, 4800e9, 50 * _M, 141 * _G, "sm_90a"),
        "NVIDIA, H200 SXM: 141 GB, 4.8 TB/s, 132 units, as saulelectric.com and openmetal.io "
        "state; the clock and the cache as the H100's",
    ),
    "cuda:b200": _gpu(
        *("NVIDIA B200", 148, 128, 1.98e9, 7700e9, 126 * _M, 180 * _G, "sm_100"),
        "hmc-tech.com, B200: 148 units, 1.98 GHz, 75 TFLOPS, 7.7 TB/s; L2 and memory from memory "
        "of NVIDIA's HGX B200 datasheet",
    ),
    "cuda:rtx-5090": _gpu(
        *("NVIDIA GeForce RTX 5090", 170, 128, 2.407e9, 1792e9, 96 * _M, 32 * _G, "sm_120"),
        "NVIDIA, RTX Blackwell GPU Architecture whitepaper, from memory: 170 units of 128 lanes, "
        "2407 MHz, 1792 GB/s, 96 MB of L2",
    ),
    # Its capability is 8.7, which runs code for 8.6; the host has the same memory.
    "cuda:jetson-orin": _gpu(
        *("Orin", 16, 128, 1.3e9, 204.8e9, 4 * _M, 32 * _G, "sm_86"),
        "NVIDIA, Jetson AGX Orin technical brief, from memory: 2048 lanes in 16 units, 1.3 GHz, "
        "204.8 GB/s, 4 MB of L2",
    ),
}
# The GPU that stands for an architecture.
_STANDS_FOR = {
    "sm_75": "cuda:t4",
    "sm_80": "cuda:a100",
    "sm_86": "cuda:rtx-3090",
    "sm_89": "cuda:rtx-4090",
    "sm_90": "cuda:h100",
    "sm_90a": "cuda:h100",
    "sm_100": "cuda:b200",
    "sm_120": "cuda:rtx-5090",
}


def _of_architecture(name: str) -> KnownMachine:
    figures = FIGURES[_STANDS_FOR[name]]
    description = dataclasses.replace(figures.described(), cpu=name, features=(name,))
    return KnownMachine(description, f"as {_STANDS_FOR[name]}: {figures.source}", generic=True)


MACHINES = {
    **{f"cuda:{name}": _of_architecture(name) for name in ARCHITECTURES},
    **{name: KnownMachine(each.described(), each.source) for name, each in FIGURES.items()},
}


def figures_of(cpu: str) -> Figures | None:
    """Return the figures of the GPU that a driver reports under the name `cpu`; None if it is not
    in the table. The memory size or the form factor may follow the name."""
    for each in FIGURES.values():
        rest = cpu.removeprefix(each.cpu)
        if cpu.startswith(each.cpu) and not rest[:1].isalnum():
            return each
    return None


def ranked_by(cpu: str, features: tuple[str, ...]) -> Figures:
    """Return the figures by which schedules are ranked. If `cpu` names a known GPU, they are that
    GPU's. If it names an architecture, they are those of a representative GPU."""
    return figures_of(cpu) or FIGURES[_STANDS_FOR[architecture_of(cpu, features)]]
