"""The architectures that code is for, and what each has. The table is asked before LLVM is: an
instruction that an architecture lacks ends the process."""

from __future__ import annotations

import dataclasses

from farrier.targets.describing import KnownMachine
from farrier_device.describe import MachineDescription

ARCH = "nvptx64"
_K, _G = 1 << 10, 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Architecture:
    """A compute capability. `ptx` is the version of PTX, ten times, that code for it is in; `units`
    and the caches are those of the GPU that stands for it. They describe a machine, no rule reads
    them, and they are not checked against the documents that `source` names yet."""

    ptx: int
    units: int
    l1_bytes: int
    l2_bytes: int
    memory_bytes: int
    source: str


_GUIDE = "CUDA C++ Programming Guide, compute capabilities; NVIDIA,"
# PTX 6.5 is the first with the tensor cores' instructions of sm_75; others are LLVM's defaults.
ARCHITECTURES = {
    "sm_75": Architecture(65, 40, 64 * _K, 4096 * _K, 16 * _G, f"{_GUIDE} T4 datasheet"),
    "sm_80": Architecture(70, 108, 164 * _K, 40960 * _K, 40 * _G, f"{_GUIDE} A100 whitepaper"),
    "sm_86": Architecture(71, 82, 100 * _K, 6144 * _K, 24 * _G, f"{_GUIDE} GA102 whitepaper"),
    "sm_89": Architecture(78, 128, 100 * _K, 73728 * _K, 24 * _G, f"{_GUIDE} Ada whitepaper"),
    "sm_90": Architecture(78, 132, 228 * _K, 51200 * _K, 80 * _G, f"{_GUIDE} H100 whitepaper"),
    "sm_100": Architecture(86, 148, 228 * _K, 129024 * _K, 180 * _G, f"{_GUIDE} B200 datasheet"),
    "sm_120": Architecture(87, 170, 100 * _K, 98304 * _K, 32 * _G, f"{_GUIDE} RTX 5090 whitepaper"),
}
OLDEST = next(iter(ARCHITECTURES))


def _described(name: str, each: Architecture) -> KnownMachine:
    description = MachineDescription(
        arch=ARCH,
        cpu=name,
        features=(),
        cores=each.units,
        l1_bytes=each.l1_bytes,
        l2_bytes=each.l2_bytes,
        l3_bytes=0,
        memory_bytes=each.memory_bytes,
    )
    return KnownMachine(description, each.source, generic=True)


MACHINES = {f"cuda:{name}": _described(name, each) for name, each in ARCHITECTURES.items()}
