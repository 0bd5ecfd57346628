"""64-bit RISC-V under Linux: the names of cores and ISA extensions.

Sources: Linux `Documentation/arch/riscv/{uabi,hwprobe}.rst`,
`arch/riscv/include/uapi/asm/{hwprobe,unistd}.h`, `include/uapi/linux/{audit,elf-em}.h`; LLVM
`llvm/lib/TargetParser/Host.cpp`.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
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


# A function that returns the register vlenb (csrr a0, vlenb; ret). It holds the bytes of a vector
# register, which Linux does not report.
_VLENB = struct.pack("<2I", 0xC2202573, 0x00008067)
_FLUSH_ICACHE = 259  # The number of the system call.
_LEAST_BYTES = 16  # Of a vector register, on every processor with `v`.


def vector_bytes() -> int:
    """Return the bytes of a vector register of this processor, which must have the extension `v`.
    If this process may not execute memory that it has written, return the fewest that there are."""
    try:
        code = mmap.mmap(-1, len(_VLENB), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return _LEAST_BYTES
    code.write(_VLENB)
    ctypes.CDLL(None).syscall(_FLUSH_ICACHE, None, None, 0)
    memory = (ctypes.c_char * len(_VLENB)).from_buffer(code)
    return int(ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(memory))())


def widths(nbytes: int) -> list[str]:
    """Return the extensions that state the least width of vector registers, for registers of
    `nbytes`: `zvl128b` and `zvl256b` for 32."""
    powers = range(_LEAST_BYTES.bit_length() - 1, nbytes.bit_length())
    return [f"zvl{8 << power}b" for power in powers]


def _features(fields: Fields) -> list[str]:
    """Return the union of the extensions that hwprobe reports and those of the `isa` line of
    /proc/cpuinfo, and the width of vectors: hwprobe describes the executing processor, while the
    line also contains extensions that hwprobe has no bit for."""
    base, bits = probed()
    named = [name for bit, name in enumerate(_BITS.split()) if bits >> bit & 1]
    probed_names = itertools.chain.from_iterable(
        _OF_ONE_LETTER.get(name, (name,)) for name in named
    )
    names = [*("ima" if base & _IMA else ""), *probed_names, *extensions(fields.get("isa", ""))]
    return [*names, *(widths(vector_bytes()) if "v" in names else ())]


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
