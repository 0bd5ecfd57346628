"""What this machine is: instruction set, cores, caches, memory, as Linux tells it."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from farrier_device import arm

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")

# 32-bit systems, as `uname -m` names them, and the 64-bit ones that their processors may run.
IN_64_BITS = {
    "armv6l": "aarch64",
    "armv7l": "aarch64",
    "armv8l": "aarch64",
    "i386": "x86_64",
    "i486": "x86_64",
    "i586": "x86_64",
    "i686": "x86_64",
}
# e_machine in the head of an ELF file
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
# What a 32-bit program is that runs on a 64-bit kernel.
_IN_32_BITS = {"aarch64": "armv8l", "x86_64": "i686"}


@dataclasses.dataclass(frozen=True, slots=True)
class MachineDescription:
    """One machine. Sizes are bytes; a cache that the kernel does not tell of has 0.

    `features` are the kernel's names of the ISA extensions, sorted (`avx512_vnni`, `asimddp`). Of a
    machine with big and little cores, everything is said of the big ones. What is `emulated` has
    the features of the machine that it stands for, and not its times.
    """

    arch: str  # of this program, as `uname -m`: x86_64, aarch64, armv7l
    cpu: str
    features: tuple[str, ...]
    cores: int  # that this process may run on
    l1_bytes: int  # data cache of one core
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    emulated: bool = False  # by software, as qemu is


def describe() -> MachineDescription:
    """This machine."""
    processors = parse_cpuinfo(_read(_CPUINFO))
    cpus = _best_first(_allowed(processors))
    fields = processors.get(cpus[0]) or next(iter(processors.values()), {})
    return MachineDescription(
        arch=arch(),
        cpu=_cpu_name(fields),
        features=tuple(sorted(set(_features(fields)))),
        cores=len(cpus),
        l1_bytes=_cache_bytes(cpus[0], level=1),
        l2_bytes=_cache_bytes(cpus[0], level=2),
        l3_bytes=_cache_bytes(cpus[0], level=3),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        emulated=is_emulated(),
    )


def arch() -> str:
    """The architecture of this program, which on a 64-bit kernel may be a 32-bit one."""
    machine = platform.machine()
    return machine if sys.maxsize > 1 << 32 else _IN_32_BITS.get(machine, machine)


def cores() -> int:
    """How many threads a model runs with where nobody says: one a big core."""
    return len(_allowed(_processors()))


def available_cpus() -> tuple[int, ...]:
    """The logical CPUs that this process may run on, but for little ones beside big ones: one of
    each physical core first, then their siblings, so that the first n are the best places for n
    threads."""
    return _best_first(_allowed(_processors()))


def _processors() -> dict[int, dict[str, str]]:
    return parse_cpuinfo(_read(_CPUINFO)) if _is_arm() else {}


def _allowed(processors: Mapping[int, Mapping[str, str]]) -> list[int]:
    cpus = sorted(os.sched_getaffinity(0))
    if not _is_arm():
        return cpus
    said = {cpu: _read(_CPUS / f"cpu{cpu}/cpu_capacity") for cpu in cpus}
    capacity = {cpu: int(text) for cpu, text in said.items() if text.isdigit()}
    return arm.big(cpus, capacity, {cpu: arm.core(of) for cpu, of in processors.items()})


def _best_first(cpus: Sequence[int]) -> tuple[int, ...]:
    first: list[int] = []
    siblings: list[int] = []
    seen: set[str] = set()
    for cpu in cpus:
        core = _read(_CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (siblings if core in seen else first).append(cpu)
        seen.add(core)
    return (*first, *siblings)


def parse_cpuinfo(text: str) -> dict[int, dict[str, str]]:
    """The fields of each processor in the text of /proc/cpuinfo, by its number."""
    found: dict[int, dict[str, str]] = {}
    for block in text.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, colon, value in pairs if colon}
        if fields.get("processor", "").isdigit():  # the last block may tell of the board
            found[int(fields["processor"])] = fields
    return found


def parse_size(text: str) -> int:
    """Bytes of a size in sysfs: `48K`, `2M`, `512`; 0 where it is none."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        return 0
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def is_emulated() -> bool:
    """Whether the program that the kernel runs is for another machine than this code: qemu-user."""
    try:
        # Of a task, and not of /proc/self: there qemu shows its guest.
        with open(f"/proc/self/task/{threading.get_native_id()}/exe", "rb") as program:
            head = program.read(20)
    except OSError:
        return False
    machine = int.from_bytes(head[18:20], "little")
    return head[:4] == b"\x7fELF" and machine != _ELF_MACHINES.get(arch(), machine)


def _is_arm() -> bool:
    return platform.machine().startswith(("aarch64", "arm"))


def _features(fields: Mapping[str, str]) -> list[str]:
    if arch() == "aarch64" and any(bits := arm.hwcaps()):
        return arm.features(*bits)
    return (fields.get("Features") or fields.get("flags", "")).split()


def _cpu_name(fields: Mapping[str, str]) -> str:
    if _is_arm():  # whose "model name", where there is one, is the version of the architecture
        return arm.core(fields) or platform.machine()
    return fields.get("model name", platform.machine())


def _cache_bytes(cpu: int, level: int) -> int:
    for index in sorted((_CPUS / f"cpu{cpu}/cache").glob("index*")):
        if _read(index / "level") == str(level) and _read(index / "type") != "Instruction":
            return parse_size(_read(index / "size"))
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""  # no sysfs in this container, or a kernel that does not tell
