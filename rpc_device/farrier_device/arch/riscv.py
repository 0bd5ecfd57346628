"""64-bit RISC-V under Linux: the names of cores and ISA extensions.

Sources: Linux `Documentation/arch/riscv/{uabi,hwprobe}.rst`,
`arch/riscv/include/uapi/asm/{hwprobe,unistd}.h`, `include/uapi/linux/{audit,elf-em}.h`; LLVM
`llvm/lib/TargetParser/Host.cpp`.
"""

from __future__ import annotations

import ctypes
import itertools
import struct

from farrier_device.arch import generic_calls
from farrier_device.arch.architecture import Architecture, Fields, SystemCalls

_HWPROBE = 258  # The number of the system call.
_BASE_BEHAVIOR, _EXTENSIONS = 3, 4  # These are keys of hwprobe.
_IMA = 1 << 0  # The base behavior is that of integers, multiplication and atomics.

# The kernel's names of ISA extensions, in the order of their bits under `_EXTENSIONS`.
_BITS = (
    "fd c v zba zbb zbs zicboz zbc zbkb zbkc zbkx zknd zkne zknh zksed zksh zkt zvbb zvbc zvkb "
    "zvkg zvkned zvknha zvknhb zvksed zvksh zvkt zfh zfhmin zihintntl zvfh zvfhmin zfa ztso zacas "
    "zicond"
)
_OF_ONE_LETTER = {"fd": ("f", "d"), "c": ("c",), "v": ("v",)}

# LLVM's names of cores by the field "uarch" of /proc/cpuinfo, which is the device tree's name.
_CORES = {
    "sifive,bullet0": "sifive-u74",
    "sifive,u74": "sifive-u74",
    "sifive,u74-mc": "sifive-u74",
    "sifive,p550": "sifive-p550",
    "spacemit,x60": "spacemit-x60",
}


def core(fields: Fields) -> str:
    """Return LLVM's name of a core; the kernel's name if LLVM has none, or "" if the kernel reports
    none either."""
    name = fields.get("uarch", "")
    return _CORES.get(name, name)


def extensions(isa: str) -> list[str]:
    """Return the extensions in an `isa` string, such as `rv64imac_zba`: single letters after the
    register width, then longer names, each after an underscore."""
    letters, *names = isa.split("_")
    return [*letters.removeprefix("rv64"), *names]


def probed() -> tuple[int, int]:
    """Return two bit masks of the system call riscv_hwprobe, the base behavior and the extensions
    that all processors have; zeros if the kernel lacks the call."""
    pairs = ctypes.create_string_buffer(struct.pack("=qQqQ", _BASE_BEHAVIOR, 0, _EXTENSIONS, 0))
    libc = ctypes.CDLL(None)
    if libc.syscall(_HWPROBE, pairs, ctypes.c_size_t(2), ctypes.c_size_t(0), None, 0) != 0:
        return 0, 0
    # A key that the kernel lacks comes back as -1, with the value 0.
    _, base, _, bits = struct.unpack("=qQqQ", pairs)
    return base, bits


def _features(fields: Fields) -> list[str]:
    """Return the union of the extensions that hwprobe reports and those of the `isa` line of
    /proc/cpuinfo: hwprobe describes the executing processor, while the line also contains
    extensions that hwprobe has no bit for."""
    base, bits = probed()
    named = [name for bit, name in enumerate(_BITS.split()) if bits >> bit & 1]
    probed_names = itertools.chain.from_iterable(
        _OF_ONE_LETTER.get(name, (name,)) for name in named
    )
    return [*("ima" if base & _IMA else ""), *probed_names, *extensions(fields.get("isa", ""))]


RISCV = Architecture(
    name="riscv64",
    names_in_32_bits=("riscv32",),
    program_in_32_bits="riscv32",
    elf_machine=243,
    calls=SystemCalls(
        audit_arch=0xC00000F3,
        numbers=generic_calls.NUMBERS | {"riscv_hwprobe": _HWPROBE},
        absent=generic_calls.ABSENT,
        allowed=("riscv_hwprobe",),  # The C library asks it which of its functions to use.
    ),
    processor=core,
    features=_features,
    little_cores=frozenset(),  # No core is little by name; the kernel's capacities decide.
)
