"""A description of this machine, as Linux reports it: instruction set, cores, caches, memory."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import sys
import threading
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from farrier_device import arch as architectures
from farrier_device import codec

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")

_BIG_SHARE = 2 / 3  # A big core has at least this share of the largest core's capacity.


@dataclasses.dataclass(frozen=True, slots=True)
class MachineDescription:
    """A machine that measures, or the target of a compilation. Sizes are in bytes; a cache that the
    kernel does not report has size 0.

    `features` are the kernel's names of the ISA extensions, sorted (`avx512_vnni`, `asimddp`). On a
    machine with big and little cores, all fields describe the big cores. An `emulated` machine has
    the features of the machine that it emulates, but not its speed. For a GPU, `host` is the
    machine that drives the GPU, by name or as the JSON text of its description.
    """

    arch: str  # The architecture of this program, as `uname -m` prints it.
    cpu: str
    features: tuple[str, ...]
    cores: int  # The number of cores that this process may run on.
    l1_bytes: int  # The data cache of one core.
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    # The machine is software, such as qemu; older versions do not know the field.
    emulated: bool = dataclasses.field(default=False, metadata=codec.OMIT_EMPTY)
    host: str = dataclasses.field(default="", metadata=codec.OMIT_EMPTY)


def describe() -> MachineDescription:
    """Describe this machine."""
    processors = parse_cpuinfo(_read(_CPUINFO))
    cpus = _best_first(_allowed(processors))
    fields = processors.get(cpus[0]) or next(iter(processors.values()), {})
    return MachineDescription(
        arch=arch(),
        cpu=architectures.here().processor(fields) or platform.machine(),
        features=tuple(sorted(set(architectures.here().features(fields)))),
        cores=len(cpus),
        l1_bytes=_cache_bytes(cpus[0], level=1),
        l2_bytes=_cache_bytes(cpus[0], level=2),
        l3_bytes=_cache_bytes(cpus[0], level=3),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        emulated=is_emulated(),
    )


def arch() -> str:
    """Return the architecture of this program, which may be a 32-bit one on a 64-bit kernel."""
    machine = platform.machine()
    in_32_bits = architectures.of(machine).program_in_32_bits
    if sys.maxsize > 1 << 32 or architectures.in_64_bits(machine):
        return machine
    return in_32_bits or machine


def cores() -> int:
    """Return the default number of threads of a model: one for each big core."""
    return len(_allowed(_processors()))


def available_cpus() -> tuple[int, ...]:
    """Return the logical CPUs that this process may run on, without little cores if there are big
    ones. The first CPU of each physical core precedes all sibling threads, so that the first n CPUs
    are the best choice for n threads."""
    return _best_first(_allowed(_processors()))


def _processors() -> dict[int, dict[str, str]]:
    """Return, by the number of the processor, those of its fields that determine whether a core is
    big."""
    return parse_cpuinfo(_read(_CPUINFO)) if architectures.here().little_cores is not None else {}


def _allowed(processors: Mapping[int, Mapping[str, str]]) -> list[int]:
    cpus = sorted(os.sched_getaffinity(0))
    here = architectures.here()
    if here.little_cores is None:
        return cpus
    said = {cpu: _read(_CPUS / f"cpu{cpu}/cpu_capacity") for cpu in cpus}
    capacity = {cpu: int(text) for cpu, text in said.items() if text.isdigit()}
    little = {cpu for cpu, of in processors.items() if here.processor(of) in here.little_cores}
    return _big(cpus, capacity, little)


def _big(cpus: Sequence[int], capacity: Mapping[int, int], little: Set[int]) -> list[int]:
    """Return the CPUs of `cpus` that are big cores, in the given order; all of them if all cores
    are equal.

    `capacity` is the relative speed of each core according to the kernel. If a speed is missing,
    the cores whose names are in `little` are taken as little ones.
    """
    if all(cpu in capacity for cpu in cpus):
        least = _BIG_SHARE * max(capacity[cpu] for cpu in cpus)
        return [cpu for cpu in cpus if capacity[cpu] >= least]
    return [cpu for cpu in cpus if cpu not in little] or list(cpus)


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
    """Return the fields of each processor in the text of /proc/cpuinfo, by its number."""
    processors: dict[int, dict[str, str]] = {}
    for block in text.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip(): value.strip() for name, colon, value in pairs if colon}
        if fields.get("processor", "").isdigit():  # The last block may describe the board.
            processors[int(fields["processor"])] = fields
    return processors


def parse_size(text: str) -> int:
    """Return the size in bytes of a text in sysfs (`48K`, `2M`, `512`); 0 for any other text."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        return 0
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def is_emulated() -> bool:
    """Return whether this program runs under an emulator such as qemu-user: whether the executable
    that the kernel runs is for another architecture than this program."""
    try:
        # The entry of a task, because in /proc/self qemu shows its guest.
        with open(f"/proc/self/task/{threading.get_native_id()}/exe", "rb") as program:
            head = program.read(20)
    except OSError:
        return False
    machine = int.from_bytes(head[18:20], "little")
    expected = architectures.of(arch()).elf_machine if sys.maxsize > 1 << 32 else None
    return head[:4] == b"\x7fELF" and expected not in (None, machine)


def _cache_bytes(cpu: int, level: int) -> int:
    for index in sorted((_CPUS / f"cpu{cpu}/cache").glob("index*")):
        if _read(index / "level") == str(level) and _read(index / "type") != "Instruction":
            return parse_size(_read(index / "size"))
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""  # This container has no sysfs, or the kernel does not report the value.
