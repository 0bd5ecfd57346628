"""The names for WebGPU code and architectures that compilers and devices share."""

from __future__ import annotations

GPU = "gpu"  # The space of the device.
WGSL = "wgsl"  # A code object of this kind is one module.
MOST_BYTES = 128 << 20  # A kernel reaches so much of a buffer, by WebGPU's default limits.
LIBRARY = "webgpu"  # A code object of this kind is a `device_library.DeviceLibrary`.
F16 = "shader-f16"  # The feature of adapters whose kernels may have the type f16.
SUBGROUPS = "subgroups"  # The feature of adapters whose threads may exchange registers.
ENABLE_SUBGROUPS = "enable subgroups;"  # The directive of modules whose kernels do so.
