"""The names for CUDA code and architectures that compilers and devices share."""

from __future__ import annotations

ARCH = "nvptx64"  # The architecture of a machine that is a GPU of NVIDIA.
GPU = "gpu"  # The space of the device.
PTX = "ptx"  # A code object of this kind is one module.
CUBIN = "cubin"  # One of this kind is a module for GPUs of one architecture, from its PTX.
LIBRARY = "cuda"  # A code object of this kind is a `device_library.DeviceLibrary`.

# The architectures of code, oldest first. A GPU runs code for its own and for earlier ones.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

# The sizes of a launch that the driver refuses to exceed: 2^31 - 1 blocks along x, 1024 threads.
MOST_BLOCKS, MOST_THREADS = (1 << 31) - 1, 1024


def runnable(major: int, minor: int) -> tuple[str, ...]:
    """Return the architectures whose code runs on a GPU with the given compute capability."""
    return tuple(name for name in ARCHITECTURES if capability(name) <= (major, minor))


def capability(architecture: str) -> tuple[int, int]:
    """Return the compute capability of an architecture: (12, 0) for `sm_120`."""
    digits = architecture.removeprefix("sm_")
    return int(digits[:-1]), int(digits[-1])
