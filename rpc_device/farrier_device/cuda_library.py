"""The names for CUDA code and architectures that compilers and devices share."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

ARCH = "nvptx64"  # The architecture of a machine that is a GPU of NVIDIA.
GPU = "gpu"  # The space of the device.
PTX = "ptx"  # A code object of this kind is one module.
CUBIN = "cubin"  # One of this kind is a module for GPUs of one architecture, from its PTX.
LIBRARY = "cuda"  # A code object of this kind is a `device_library.DeviceLibrary`.

# The architectures of code, oldest first. A GPU runs code for its own and for earlier ones; only
# GPUs of the same compute capability run code for an architecture whose name ends in "a".
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")

# The sizes of a launch that the driver refuses to exceed: 2^31 - 1 blocks along x, 1024 threads.
MOST_BLOCKS, MOST_THREADS = (1 << 31) - 1, 1024


def runnable(major: int, minor: int) -> tuple[str, ...]:
    """Return the architectures whose code runs on a GPU with the given compute capability."""
    return tuple(name for name in ARCHITECTURES if runs_on(name, (major, minor)))


def runs_on(architecture: str, has: tuple[int, int]) -> bool:
    """Check whether a GPU of a compute capability runs code for an architecture."""
    needed = capability(architecture)
    return needed == has if is_specific(architecture) else needed <= has


def is_specific(architecture: str) -> bool:
    """Check whether code for an architecture runs on GPUs of its compute capability alone."""
    return architecture.endswith("a")


def capability(architecture: str) -> tuple[int, int]:
    """Return the compute capability of an architecture: (12, 0) for `sm_120`."""
    digits = architecture.removeprefix("sm_").removesuffix("a")
    return int(digits[:-1]), int(digits[-1])


class TensorMap(NamedTuple):
    """An argument of a kernel as a matrix of which tiles are copied: the position of the argument,
    the bytes of an element, the elements of a row, the rows, and those of a tile. A row of a tile
    has ROW_BYTES bytes."""

    position: int
    element_bytes: int
    width: int
    height: int
    rows: int


ROW_BYTES = 128
MAP_BYTES, MAP_ALIGNMENT = 128, 64  # Of a CUtensorMap.
# The tensor maps that an entry point takes behind its other parameters are stated likewise.
_MAP = re.compile(r"^\s*// map ([\w$.]+)((?: \d+){6})$", re.MULTILINE)


def map_comment(entry: str, number: int, described: TensorMap) -> str:
    """Return the comment that an entry point takes a tensor map, its first one as number 0."""
    return f"// map {entry} {' '.join(map(str, (number, *described)))}"


def tensor_maps(module: str) -> dict[str, list[TensorMap]]:
    """Return the tensor maps of entry points in order, by their names."""
    maps: dict[str, dict[int, TensorMap]] = defaultdict(dict)
    for entry, numbers in _MAP.findall(module):
        number, *described = map(int, numbers.split())
        maps[entry][number] = TensorMap(*described)
    return {entry: [each[number] for number in sorted(each)] for entry, each in maps.items()}


# The bytes of shared memory that a launch sets are stated by a comment of the PTX module.
_SHARED = re.compile(r"^\s*// shared ([\w$.]+) (\d+)$", re.MULTILINE)


def shared_comment(entry: str, nbytes: int) -> str:
    """Return the comment that an entry point needs some bytes of shared memory from its launch."""
    return f"// shared {entry} {nbytes}"


def shared_bytes(module: str) -> dict[str, int]:
    """Return the bytes of shared memory that launches of entry points set, by their names."""
    return {entry: int(nbytes) for entry, nbytes in _SHARED.findall(module)}
