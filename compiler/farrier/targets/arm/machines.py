"""The named aarch64 machines."""

from __future__ import annotations

from farrier.targets.arm.cores import CORES
from farrier.targets.describing import KnownMachine
from farrier_device.describe import MachineDescription

_K, _M, _G = 1 << 10, 1 << 20, 1 << 30


def _machine(
    core: str, cores: int, caches: tuple[int, int, int], memory: int, source: str
) -> KnownMachine:
    l1, l2, l3 = caches
    features = tuple(sorted(CORES[core].features))
    return KnownMachine(
        MachineDescription(
            arch="aarch64",
            cpu=core,
            features=features,
            cores=cores,
            l1_bytes=l1,
            l2_bytes=l2,
            l3_bytes=l3,
            memory_bytes=memory,
        ),
        source,
    )


# The caches are: L1 data of each core, L2 (of each core or shared), shared last level.
MACHINES = {
    "rpi3": _machine(
        "cortex-a53", 4, (32 * _K, 512 * _K, 0), _G, "Raspberry Pi 3B+, Broadcom BCM2837B0, 1.4 GHz"
    ),
    "rpi4": _machine(
        "cortex-a72", 4, (32 * _K, _M, 0), 4 * _G, "Raspberry Pi 4B, Broadcom BCM2711, 1.5 GHz"
    ),
    "rpi5": _machine(
        *("cortex-a76", 4, (64 * _K, 512 * _K, 2 * _M), 8 * _G),
        "Raspberry Pi 5, Broadcom BCM2712, 2.4 GHz",
    ),
    "jetson-orin": _machine(
        *("cortex-a78", 12, (64 * _K, 256 * _K, 6 * _M), 32 * _G),
        "NVIDIA Jetson AGX Orin, Cortex-A78AE, 2.2 GHz; the CPU alone",
    ),
    "graviton2": _machine(
        *("neoverse-n1", 64, (64 * _K, _M, 32 * _M), 128 * _G),
        "AWS Graviton2, a whole socket; --threads for a part of it",
    ),
    "graviton3": _machine(
        *("neoverse-v1", 64, (64 * _K, _M, 32 * _M), 128 * _G),
        "AWS Graviton3, a whole socket; --threads for a part of it",
    ),
    "graviton4": _machine(
        *("neoverse-v2", 96, (64 * _K, 2 * _M, 36 * _M), 192 * _G),
        "AWS Graviton4, a whole socket; --threads for a part of it",
    ),
    "altra": _machine(
        "neoverse-n1", 80, (64 * _K, _M, 32 * _M), 256 * _G, "Ampere Altra Q80, a whole socket"
    ),
}
