"""A home on a disk of its own that is small, and can be filled."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted folder; short, for the sake of the socket in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._filler = home / "filler"

    def fill(self) -> None:
        """Leave no byte."""
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            for piece in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(piece))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(mib: int) -> Iterator[SmallDisk]:
    """A disk in memory. Skips the test where nothing may be mounted."""
    home = Path(tempfile.mkdtemp(prefix="farrier-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(home)]
    try:
        mounted = shutil.which("mount") and subprocess.run(
            command, capture_output=True, check=False
        )
        if not mounted or mounted.returncode:
            pytest.skip("nothing may be mounted here")
        try:
            yield SmallDisk(home)
        finally:
            subprocess.run(["umount", "-l", str(home)], check=True)
    finally:
        home.rmdir()
