"""ARM under Linux: the names of cores, ISA extensions and little cores.

Sources: Linux `arch/arm64/include/asm/cputype.h`, `arch/arm64/include/uapi/asm/hwcap.h`,
`arch/arm64/kernel/cpuinfo.c`, `include/uapi/linux/audit.h`; LLVM `llvm/lib/TargetParser/Host.cpp`;
the documentation of the Raspberry Pi's firmware for its temperature limit.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from farrier_device.arch import generic_calls
from farrier_device.arch.architecture import Architecture, Fields, SystemCalls

_AT_HWCAP, _AT_HWCAP2 = 16, 26

# Cores by "CPU implementer" and "CPU part": who implements decides what a part number means.
_ARM, _HISILICON, _FUJITSU, _MICROSOFT, _AMPERE = 0x41, 0x48, 0x46, 0x6D, 0xC0
_CORES = {
    (_ARM, 0xD01): "cortex-a32",
    (_ARM, 0xD02): "cortex-a34",
    (_ARM, 0xD03): "cortex-a53",
    (_ARM, 0xD04): "cortex-a35",
    (_ARM, 0xD05): "cortex-a55",
    (_ARM, 0xD07): "cortex-a57",
    (_ARM, 0xD08): "cortex-a72",
    (_ARM, 0xD09): "cortex-a73",
    (_ARM, 0xD0A): "cortex-a75",
    (_ARM, 0xD0B): "cortex-a76",
    (_ARM, 0xD0C): "neoverse-n1",
    (_ARM, 0xD0D): "cortex-a77",
    (_ARM, 0xD0E): "cortex-a76ae",
    (_ARM, 0xD40): "neoverse-v1",
    (_ARM, 0xD41): "cortex-a78",
    (_ARM, 0xD42): "cortex-a78ae",
    (_ARM, 0xD44): "cortex-x1",
    (_ARM, 0xD46): "cortex-a510",
    (_ARM, 0xD47): "cortex-a710",
    (_ARM, 0xD48): "cortex-x2",
    (_ARM, 0xD49): "neoverse-n2",
    (_ARM, 0xD4A): "neoverse-e1",
    (_ARM, 0xD4B): "cortex-a78c",
    (_ARM, 0xD4D): "cortex-a715",
    (_ARM, 0xD4E): "cortex-x3",
    (_ARM, 0xD4F): "neoverse-v2",
    (_ARM, 0xD80): "cortex-a520",
    (_ARM, 0xD81): "cortex-a720",
    (_ARM, 0xD82): "cortex-x4",
    (_ARM, 0xD84): "neoverse-v3",
    (_ARM, 0xD8E): "neoverse-n3",
    (_ARM, 0xC07): "cortex-a7",
    (_ARM, 0xC0F): "cortex-a15",
    (_FUJITSU, 0x001): "a64fx",
    (_HISILICON, 0xD01): "tsv110",
    (_MICROSOFT, 0xD49): "neoverse-n2",
    (_AMPERE, 0xAC3): "ampere1",
    (_AMPERE, 0xAC4): "ampere1a",
}
# Cores that are made to accompany larger ones.
_LITTLE = frozenset(
    {
        *("cortex-a7", "cortex-a32", "cortex-a34", "cortex-a35", "cortex-a53", "cortex-a55"),
        *("cortex-a510", "cortex-a520"),
    }
)

# The kernel's names of ISA extensions, in the order of their bits in AT_HWCAP and AT_HWCAP2.
_HWCAP = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg"
)
_HWCAP2 = (
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm "
    "svebf16 i8mm bf16 dgh rng bti mte ecv afp rpres mte3 sme smei16i64 smef64f64 smei8i32 "
    "smef16f32 smeb16f32 smef32f32 smefa64 wfxt ebf16 sveebf16 cssc rprfm sve2p1 sme2 sme2p1 "
    "smei16i32 smebi32i32 smeb16b16 smef16f16 mops hbc sveb16b16 lrcpc3 lse128"
)


def core(fields: Fields) -> str:
    """Return LLVM's name of the core that the fields of /proc/cpuinfo describe. Without such a
    name, return the numbers of implementer and part; "" if the fields contain neither."""
    try:
        implementer, part = (int(fields[f"CPU {name}"], 0) for name in ("implementer", "part"))
    except (KeyError, ValueError):
        return ""
    return _CORES.get((implementer, part), f"implementer {implementer:#x} part {part:#x}")


def hwcaps() -> tuple[int, int]:
    """Return AT_HWCAP and AT_HWCAP2 of this process, bit masks of the processor's extensions; zeros
    if libc cannot read these values.

    The masks describe the processor that executes this process. Under qemu-user that is the
    emulated processor, while /proc/cpuinfo may describe the host's.
    """
    try:
        ask: Any = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError):
        return 0, 0
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    return ask(_AT_HWCAP), ask(_AT_HWCAP2)


def _features(fields: Fields) -> list[str]:
    """Return the names of the ISA extensions, from the bits of `hwcaps`. They are read from
    /proc/cpuinfo instead in a 32-bit program, where the bits mean other extensions, and if no bits
    are available."""
    if sys.maxsize > 1 << 32 and any(bits := hwcaps()):
        pairs = zip((_HWCAP, _HWCAP2), bits, strict=True)
        return [name for names, word in pairs for name in _set_in(names, word)]
    return fields.get("Features", "").split()


def _set_in(names: str, word: int) -> list[str]:
    return [name for bit, name in enumerate(names.split()) if word >> bit & 1]


ARM = Architecture(
    name="aarch64",
    names_in_32_bits=("armv6l", "armv7l", "armv8l"),
    program_in_32_bits="armv8l",
    elf_machine=183,
    calls=SystemCalls(
        audit_arch=0xC00000B7,
        numbers=generic_calls.NUMBERS,
        absent=generic_calls.ABSENT,
    ),
    processor=core,  # A "model name", where there is one, is the version of the architecture.
    features=_features,
    little_cores=_LITTLE,
    limit_celsius=80.0,  # A Raspberry Pi slows down from there, others later.
)
