"""Farrier's distributions, built as a release builds them: the wheel from the source archive."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it alone; without an index."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("farrier-*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=unpacked, check=True, capture_output=True)
    (wheel,) = folder.glob("farrier-*.whl")
    return archive, wheel
