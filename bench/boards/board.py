"""The emulated machine that replaces a board: qemu's processor and the content of /proc/cpuinfo."""

from __future__ import annotations

from farrier.targets import parse_target

TARGET = "rpi5"
QEMU_CPU = "neoverse-n1"  # The same core as Cortex-A76, as far as programs can see.

_FEATURES = "fp asimd evtstrm aes pmull sha1 sha2 crc32"
_NEW_FEATURES = f"{_FEATURES} atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
_MOST = "max,sve=off"
# For each processor of qemu: the part number of the core that it stands for, and the features that
# the kernel reports.
_PROCESSORS = {
    "cortex-a53": (0xD03, _FEATURES),
    "cortex-a57": (0xD07, _FEATURES),
    "cortex-a72": (0xD08, _FEATURES),
    QEMU_CPU: (0xD0B, _NEW_FEATURES),
    _MOST: (0xD40, f"{_NEW_FEATURES} jscvt fcma ilrcpc flagm i8mm bf16"),
}
_PROCESSOR = """processor\t: {number}
BogoMIPS\t: 108.00
Features\t: {features}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x4
CPU part\t: {part:#x}
CPU revision\t: 1

"""


def qemu_cpu(target: str) -> str:
    """Return the name of qemu's smallest processor with the features of a target, so that other
    instructions are illegal. Raises UsageError for an unknown target."""
    code = parse_target(target)
    if code.cpu in _PROCESSORS:
        return code.cpu
    needed = code.required_features
    fits = (name for name, (_, has) in _PROCESSORS.items() if needed <= set(has.split()))
    return next(fits, _MOST)


def cpuinfo(cpus: int, cpu: str = QEMU_CPU) -> str:
    """Return the text of /proc/cpuinfo for a board with `cpus` processors of a type."""
    part, features = _PROCESSORS.get(cpu, _PROCESSORS[QEMU_CPU])
    return "".join(
        _PROCESSOR.format(number=number, features=features, part=part) for number in range(cpus)
    )
