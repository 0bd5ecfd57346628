"""The supported NVIDIA architectures and their properties. The table is checked before LLVM is
called, because LLVM aborts the process on an instruction that the architecture does not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farrier_device.cuda_library import ARCH

__all__ = ["ARCH", "ARCHITECTURES", "OLDEST", "Architecture", "architecture_of"]

_K = 1 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class Architecture:
    """A compute capability. `ptx` is the PTX version of generated code, times ten. `threads` and
    `shared_bytes` are the limits of a multiprocessor."""

    ptx: int
    threads: int
    shared_bytes: int


# PTX 6.5 is the first with the tensor cores' instructions of sm_75, and 8.4 with all products of
# sm_90a; others are LLVM's defaults.
# Threads and bytes: CUDA C++ Programming Guide, "Technical specifications per compute capability".
ARCHITECTURES = {
    "sm_75": Architecture(65, 1024, 64 * _K),
    "sm_80": Architecture(70, 2048, 164 * _K),
    "sm_86": Architecture(71, 1536, 100 * _K),
    "sm_89": Architecture(78, 1536, 100 * _K),
    "sm_90": Architecture(78, 2048, 228 * _K),
    "sm_90a": Architecture(84, 2048, 228 * _K),
    "sm_100": Architecture(86, 2048, 228 * _K),
    "sm_120": Architecture(87, 1536, 100 * _K),
}
OLDEST = next(iter(ARCHITECTURES))


def architecture_of(cpu: str, features: Sequence[str]) -> str:
    """Return the architecture to generate code for: the newest in the machine's features, or the
    machine's name if that is an architecture. Code for sm_90a runs on GPUs of that capability
    alone, so the features of later ones do not list it."""
    named = [name for name in ARCHITECTURES if name in features or name == cpu]
    return named[-1] if named else OLDEST
