"""The profile of a sandbox: what the driver of a device needs beyond computing in memory.

The rules of `seccomp` and `landlock` are those of the host, and a profile adds to them. A driver
opens device files for reading and writing, and asks them by `ioctl`. Landlock restricts both to the
files that the profile names, so a profile with files requires that layer.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from farrier_device.landlock import Access


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """The additions for one kind of device.

    `files` are device files, or folders of them; `reads` are other paths that the driver reads.
    `calls` are further system calls, by the kernel's names (`arch`). Without `bounds_addresses` the
    address space has no limit: drivers map more addresses than there is memory. `tasks` are threads
    of the driver, in addition to those of the limits.
    """

    name: str
    files: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    bounds_addresses: bool = True
    tasks: int = 0

    @property
    def required(self) -> tuple[str, ...]:
        """The layers without which the profile would allow more than it names."""
        return ("landlock",) if self.files else ()

    def access(self) -> dict[Path, Access]:
        """Return the paths that stay open, with the access to each."""
        files = {Path(path): Access.DEVICE for path in self.files}
        return files | {Path(path): Access.READ for path in self.reads}


HOST = Profile("host")
