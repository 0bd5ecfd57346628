"""The machine that code is made for: its instruction set, cores and caches."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json

from farrier.errors import UsageError
from farrier_device import describe


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine. Sizes are bytes; caches are per core but for the last level."""

    triple: str  # LLVM's target triple
    cpu: str  # LLVM's CPU name
    features: tuple[str, ...]  # the kernel's names of the ISA extensions that code may use, sorted
    vector_bits: int
    registers: int  # architectural vector registers
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    tune: str = ""  # LLVM's name of the microarchitecture, where its costs were measured

    @property
    def lanes(self) -> int:
        """f32 elements in a vector register."""
        return self.vector_bits // 32

    @property
    def arch(self) -> str:
        """As `uname -m` names it."""
        return self.triple.partition("-")[0]

    @property
    def required_features(self) -> frozenset[str]:
        """The kernel's names of every ISA extension that code may use."""
        return _REQUIRED.get(self.cpu, frozenset()) | set(self.features)

    @property
    def fingerprint(self) -> str:
        """What a tuning record's timing depends on: 16 hex digits over ISA, cores and caches."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# vector width, registers, and the CPU name that LLVM knows, by level of the x86-64 psABI
_LEVELS = {"x86-64-v2": (128, 16), "x86-64-v3": (256, 16), "x86-64-v4": (512, 32)}
_V2 = frozenset({"sse4_1", "sse4_2", "ssse3", "popcnt", "cx16"})
_V3 = _V2 | {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_EXTENSIONS = frozenset(
    {"avx512_bf16", "avx512_vnni", "avx_vnni", "avx512_fp16", "amx_tile", "amx_bf16"}
)
_REQUIRED = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}


def parse_target(text: str) -> Target:
    """`host`, or an x86-64 psABI level (`x86-64-v2`, `-v3`, `-v4`) with this machine's core count
    and caches; raises UsageError for any other text, and for a host that is not x86-64 Linux."""
    if text == "host":
        return host()
    if text in _LEVELS:
        return _at_level(text, ())
    raise UsageError(
        f"unknown target {text!r}", hint=f"--target host, or one of {', '.join(sorted(_LEVELS))}"
    )


@functools.cache
def host() -> Target:
    """The machine this runs on."""
    machine = describe.describe()
    if machine.arch != "x86_64":
        raise UsageError(f"no code generator for {machine.arch} yet", hint="use an x86-64 machine")
    flags = set(machine.features)
    level = "x86-64-v4" if flags >= _V4 else "x86-64-v3" if flags >= _V3 else "x86-64-v2"
    return _at_level(level, tuple(sorted(flags & _EXTENSIONS)))


def missing_features(triple: str, cpu: str, features: tuple[str, ...]) -> list[str]:
    """What this machine lacks to run code for another target's triple, CPU and features."""
    machine = describe.describe()
    arch = triple.partition("-")[0]
    if arch != machine.arch:
        return [arch]
    required = _REQUIRED.get(cpu, frozenset()) | set(features)
    return sorted(required - set(machine.features))


def _at_level(level: str, extensions: tuple[str, ...]) -> Target:
    machine = describe.describe()
    bits, registers = _LEVELS[level]
    return Target(
        triple="x86_64-unknown-linux-gnu",
        cpu=level,
        features=extensions,
        vector_bits=bits,
        registers=registers,
        cores=machine.cores,
        l1_bytes=machine.l1_bytes or 32 << 10,
        l2_bytes=machine.l2_bytes or 512 << 10,
        l3_bytes=machine.l3_bytes or 8 << 20,
        tune=_microarchitecture(machine),
    )


def _microarchitecture(machine: describe.MachineDescription) -> str:
    """The nearest of those that `space/machine.py` has figures of, "" for none. A virtual machine
    may hide the model of its processor; the vendor and the extensions show through."""
    flags = set(machine.features)
    if "Intel" in machine.cpu and "avx512f" in flags:
        return "sapphirerapids"
    if "AMD" in machine.cpu and flags >= _V3 and "avx512f" not in flags:
        return "znver3"
    return ""
