"""The named RISC-V machines."""

from __future__ import annotations

from farrier.targets.describing import KnownMachine
from farrier.targets.riscv.cores import BASE
from farrier_device.describe import MachineDescription

_K, _M, _G = 1 << 10, 1 << 20, 1 << 30


def _description(
    core: str, extensions: str, cores: int, l2_bytes: int, memory: int
) -> MachineDescription:
    """Return the description of a machine whose cores each have a data cache of 32 KiB and whose
    last-level cache is the L2."""
    return MachineDescription(
        arch="riscv64",
        cpu=core,
        features=tuple(sorted(BASE | set(extensions.split()))),
        cores=cores,
        l1_bytes=32 * _K,
        l2_bytes=l2_bytes,
        l3_bytes=0,
        memory_bytes=memory,
    )


MACHINES = {
    "rv64gc": KnownMachine(
        _description("rv64gc", "", 4, _M, 4 * _G),
        "RISC-V Unprivileged ISA, RV64GC; a guess at the caches of a small board",
        generic=True,
    ),
    "rv64gcv": KnownMachine(
        _description("rv64gcv", "v zvl128b", 4, _M, 4 * _G),
        "RISC-V Unprivileged ISA, RV64GCV, 128-bit vectors; a guess at the caches of a small board",
        generic=True,
    ),
    "visionfive2": KnownMachine(
        _description("sifive-u74", "zba zbb", 4, 2 * _M, 8 * _G),
        "StarFive VisionFive 2, JH7110 with four SiFive U74, 1.5 GHz",
    ),
    "spacemit-k1": KnownMachine(
        _description("spacemit-x60", "v zvl256b zba zbb zbs", 8, _M, 4 * _G),
        "SpacemiT K1 (Banana Pi BPI-F3), two clusters of four X60, 1.6 GHz, vectors of 256 bits",
    ),
}
