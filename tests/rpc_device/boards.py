"""Boards, as their kernels describe them."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from farrier_device import describe
from farrier_device.arch import arm, riscv

_PROCESSOR = """processor\t: {number}
BogoMIPS\t: 108.00
Features\t: {features}
CPU implementer\t: {implementer:#04x}
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: {part:#05x}
CPU revision\t: 3

"""
_RISCV_PROCESSOR = """processor\t: {number}
hart\t\t: {number}
isa\t\t: {features}
mmu\t\t: sv39
uarch\t\t: sifive,u74-mc
mvendorid\t: 0x489

"""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Cores of one kind. `caches` are as sysfs has them: level, type, size."""

    part: int
    cores: int
    caches: Sequence[tuple[str, str, str]] = ()
    capacity: int | None = 1024
    implementer: int = 0x41


@dataclasses.dataclass(frozen=True)
class Board:
    """A board; `machine` is what `uname -m` says, `end` what stands below the processors."""

    clusters: Sequence[Cluster]
    features: str
    hwcaps: tuple[int, int]
    machine: str = "aarch64"
    end: str = ""
    processor: str = _PROCESSOR


def _caches(data: str, instructions: str, l2: str, l3: str = "") -> list[tuple[str, str, str]]:
    first = [("1", "Data", data), ("1", "Instruction", instructions), ("2", "Unified", l2)]
    return first + ([("3", "Unified", l3)] if l3 else [])


_V8_2 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop "
    "asimddp"
)
RPI4 = Board(
    [Cluster(0xD08, 4, _caches("32K", "48K", "1024K"))],
    "fp asimd evtstrm crc32 cpuid",
    (0x887, 0),
    end="Hardware\t: BCM2835\nRevision\t: c03112\nModel\t\t: Raspberry Pi 4 Model B Rev 1.2\n",
)
RPI5 = Board(
    [Cluster(0xD0B, 4, _caches("64K", "64K", "512K", "2048K"))],
    _V8_2,
    (0x119FFF, 0),
    end="Revision\t: c04170\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n",
)
RK3588 = Board(
    [
        Cluster(0xD05, 4, _caches("32K", "32K", "128K", "3072K"), capacity=414),
        Cluster(0xD0B, 2, _caches("64K", "64K", "512K", "3072K"), capacity=1024),
        Cluster(0xD0B, 2, _caches("64K", "64K", "512K", "3072K"), capacity=1010),
    ],
    _V8_2,
    (0x119FFF, 0),
)
GRAVITON3 = Board(
    [Cluster(0xD40, 16, _caches("64K", "64K", "1024K", "32768K"))],
    f"{_V8_2} jscvt fcma sha3 sm3 sm4 sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg "
    "dcpodp svei8mm svebf16 i8mm bf16 dgh rng",
    (0xDFFFFFFF, 0x1F201),
)
PC = Board([], "sse avx2", (0, 0), machine="x86_64", end="processor\t: 0\nflags\t\t: sse avx2\n")
# A Raspberry Pi 4 with a 32-bit system.
RPI4_IN_32_BITS = Board(
    [Cluster(0xD08, 4)],
    "half thumb fastmult vfp edsp neon vfpv3 tls vfpv4 idiva idivt vfpd32 lpae evtstrm crc32",
    (0x3FB0D6, 0x10),
    machine="armv7l",
    end=RPI4.end,
)

# A StarFive VisionFive 2: the fifth core, which runs no Linux, is not there.
VISIONFIVE2 = Board(
    [Cluster(0, 4, _caches("32K", "32K", "2048K"), capacity=None)],
    "rv64imafdc_zicntr_zicsr_zifencei_zihpm_zca_zcd_zba_zbb",
    (1, 0b11011),
    machine="riscv64",
    processor=_RISCV_PROCESSOR,
)


class Pretended:
    """This machine as a board: what `farrier_device.describe` reads lies in a folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch
        patch.setattr(describe, "_CPUINFO", folder / "cpuinfo")
        patch.setattr(describe, "_CPUS", folder / "cpu")

    def be(self, board: Board, *, bits: int = 64) -> None:
        """Become the board, running programs of `bits` bits on all its cores."""
        cores = [cluster for cluster in board.clusters for _ in range(cluster.cores)]
        self.write_cpuinfo(
            "".join(
                board.processor.format(
                    number=number,
                    features=board.features,
                    part=core.part,
                    implementer=core.implementer,
                )
                for number, core in enumerate(cores)
            )
            + board.end
        )
        for number, core in enumerate(cores):
            self._describe(number, core)
        self._patch.setattr(arm, "hwcaps", lambda: board.hwcaps)
        self._patch.setattr(riscv, "probed", lambda: board.hwcaps)
        self._patch.setattr(platform, "machine", lambda: board.machine)
        self._patch.setattr(sys, "maxsize", (1 << bits - 1) - 1)
        self.allow(range(len(cores) or 1))

    def write_cpuinfo(self, text: str) -> None:
        (self._folder / "cpuinfo").write_text(text)

    def allow(self, cpus: Sequence[int]) -> None:
        """Bind this process to some of its CPUs."""
        self._patch.setattr(os, "sched_getaffinity", lambda pid: set(cpus))

    def _describe(self, number: int, core: Cluster) -> None:
        folder = self._folder / f"cpu/cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology/thread_siblings_list").write_text(f"{number}\n")
        if core.capacity is not None:
            (folder / "cpu_capacity").write_text(f"{core.capacity}\n")
        for index, words in enumerate(core.caches):
            place = folder / f"cache/index{index}"
            place.mkdir(parents=True)
            for name, text in zip(("level", "type", "size"), words, strict=True):
                (place / name).write_text(f"{text}\n")
