"""What the emulated machine says of itself: a Raspberry Pi 5; qemu has its core as Neoverse N1."""

from __future__ import annotations

TARGET = "rpi5"
QEMU_CPU = "neoverse-n1"  # the same core as Cortex-A76, as far as programs can tell

_PROCESSOR = """processor\t: {number}
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc \
dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: 0xd0b
CPU revision\t: 1

"""


def cpuinfo(cpus: int) -> str:
    """The text of /proc/cpuinfo."""
    return "".join(_PROCESSOR.format(number=number) for number in range(cpus))
