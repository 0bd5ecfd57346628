"""The words for CUDA that compilers and devices share."""

from __future__ import annotations

ARCH = "nvptx64"  # The architecture of a machine that is a GPU of NVIDIA.
GPU = "gpu"  # The space of the device.
PTX = "ptx"  # A code object of this kind is one module.
LIBRARY = "cuda"  # A code object of this kind is a `device_library.DeviceLibrary`.
