"""What this machine is: instruction set, cores, caches, memory, as Linux tells it."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")

# /proc/cpuinfo's field that lists the ISA extensions: x86 says "flags", ARM says "Features".
_FEATURE_FIELDS = ("flags", "Features")

# ARM cores say a part number, not a name ("CPU part" where "CPU implementer" is 0x41, Arm Ltd).
_ARM_PARTS = {
    0xD03: "cortex-a53",
    0xD04: "cortex-a35",
    0xD05: "cortex-a55",
    0xD07: "cortex-a57",
    0xD08: "cortex-a72",
    0xD09: "cortex-a73",
    0xD0A: "cortex-a75",
    0xD0B: "cortex-a76",
    0xD0C: "neoverse-n1",
    0xD40: "neoverse-v1",
    0xD41: "cortex-a78",
    0xD44: "cortex-x1",
    0xD49: "neoverse-n2",
    0xD4F: "neoverse-v2",
}


@dataclasses.dataclass(frozen=True, slots=True)
class MachineDescription:
    """One machine. Sizes are bytes; a cache that the kernel does not tell of has 0.

    `features` are the kernel's names of the ISA extensions, sorted (`avx512_vnni`, `asimddp`).
    """

    arch: str  # as `uname -m`: x86_64, aarch64, armv7l
    cpu: str
    features: tuple[str, ...]
    cores: int  # that this process may run on
    l1_bytes: int  # data cache of one core
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int


def describe() -> MachineDescription:
    """This machine."""
    fields = parse_cpuinfo(_CPUINFO.read_text(errors="replace"))
    features = next((fields[name] for name in _FEATURE_FIELDS if name in fields), "")
    cpu = available_cpus()[0]
    return MachineDescription(
        arch=platform.machine(),
        cpu=_cpu_name(fields),
        features=tuple(sorted(set(features.split()))),
        cores=cores(),
        l1_bytes=_cache_bytes(cpu, level=1),
        l2_bytes=_cache_bytes(cpu, level=2),
        l3_bytes=_cache_bytes(cpu, level=3),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )


def cores() -> int:
    """How many threads a model runs with where nobody says."""
    return len(os.sched_getaffinity(0))


def available_cpus() -> tuple[int, ...]:
    """The logical CPUs that this process may run on: one of each physical core first, then their
    siblings, so that the first n are the best places for n threads."""
    first: list[int] = []
    siblings: list[int] = []
    seen: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _read(_CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (siblings if core in seen else first).append(cpu)
        seen.add(core)
    return (*first, *siblings)


def parse_cpuinfo(text: str) -> dict[str, str]:
    """The fields of the first processor in the text of /proc/cpuinfo."""
    first = text.split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def parse_size(text: str) -> int:
    """Bytes of a size in sysfs: `48K`, `2M`, `512`; 0 where it is none."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        return 0
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def _cpu_name(fields: dict[str, str]) -> str:
    if "model name" in fields:
        return fields["model name"]
    part = int(fields.get("CPU part", "0"), 0)
    return _ARM_PARTS.get(part, platform.machine())


def _cache_bytes(cpu: int, level: int) -> int:
    for index in sorted((_CPUS / f"cpu{cpu}/cache").glob("index*")):
        if _read(index / "level") == str(level) and _read(index / "type") != "Instruction":
            return parse_size(_read(index / "size"))
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # no sysfs in this container, or a kernel that does not tell
