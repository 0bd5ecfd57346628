"""The profile of a sandbox: the accesses that a device's driver needs in addition to computing in
memory.

A profile extends the rules of `seccomp` and `landlock`, which are those for the host. A driver
opens device files for reading and writing, and controls them by `ioctl`. Landlock restricts both to
the files that the profile names, so a profile with files requires the layer `landlock`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from farrier_device.landlock import Access

_GPU_FILES = (
    *("/dev/dri", "/dev/mali0", "/dev/kgsl-3d0"),
    *("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset", "/dev/nvidia-caps"),
    *(f"/dev/nvidia{number}" for number in range(16)),  # A machine has 16 GPUs at most.
)
# The loader of Vulkan and its drivers read their configuration, and the system's files on devices.
_GPU_READS = ("/etc/vulkan", "/etc/nvidia", "/etc/drirc", "/sys/dev", "/sys/class/drm", "/sys/bus")


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """The additions to the sandbox for one kind of device.

    `files` are device files, or folders of them; `reads` are other paths that the driver reads.
    `calls` are further system calls, by the kernel's names (`arch`). `bounds_addresses` limits the
    address space; it is false for drivers that map more addresses than there is memory.
    `bounds_files` limits the size of files; it is false for drivers that keep memory in unnamed
    files. `tasks` is the number of the driver's threads, in addition to the sandbox's limit.

    With `is_package`, the driver is a Python package with the libraries that it loads, or a library
    whose system calls are not listed. The process may then read the Python installation
    (`installation.readable`), and a deny-list (`denials`) of the calls that reach other processes
    and networks replaces the allow-list of system calls. `variables` are the driver's environment
    variables.
    """

    name: str
    files: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    bounds_addresses: bool = True
    bounds_files: bool = True
    tasks: int = 0
    is_package: bool = False
    variables: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The sandbox layers without which the profile would allow more than it names."""
        return ("landlock",) if self.files and not self.is_package else ()

    def access(self) -> dict[Path, Access]:
        """Return the paths that stay accessible, with the access to each."""
        files = {Path(path): Access.DEVICE for path in self.files}
        return files | {Path(path): Access.READ for path in self.reads}


HOST = Profile("host")

# The names of drivers' files are those of Vulkan's loader.
WEBGPU = Profile(
    "webgpu",
    files=_GPU_FILES,
    reads=_GPU_READS,
    bounds_addresses=False,
    bounds_files=False,
    tasks=256,  # A driver and its compiler have threads; llvmpipe has one for each core.
    is_package=True,
    variables=("FARRIER_WEBGPU", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"),
)

# The files of NVIDIA's driver, and of that for Jetson, as its containers get them.
CUDA = Profile(
    "cuda",
    files=(
        *(path for path in _GPU_FILES if "nvidia" in path),
        *("/dev/nvidia-uvm-tools", "/dev/nvmap", "/dev/nvsciipc", "/dev/nvgpu"),
        *(f"/dev/nvhost-{name}" for name in ("ctrl", "ctrl-gpu", "gpu", "as-gpu", "prof-gpu")),
    ),
    reads=("/proc/driver", "/proc/devices", "/proc/modules", "/sys/module", "/sys/bus", "/sys/dev"),
    bounds_addresses=False,  # A driver reserves the addresses of all memory, several times.
    bounds_files=False,
    tasks=64,
    is_package=True,
    variables=("FARRIER_CUDA", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
)

# A simulator is Python, and packages that it imports; the code of its host runs in its process.
SIMULATOR = Profile("simulator", is_package=True)
