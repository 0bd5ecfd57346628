"""Python where packages are installed that Farrier finds by their entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MAIN = "from farrier.cli.main import main; main()"


def install(
    modules: Path, site: Path, name: str, version: str, points: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Write what `pip install` writes of a package with these entry points, by group; give the
    folders by which Python finds it and its modules, which stay where they are."""
    about = site / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (about / "METADATA").write_text(metadata)
    lines = []
    for group, entries in points.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in entries.items())]
    (about / "entry_points.txt").write_text("".join(f"{line}\n" for line in lines))
    return [str(modules), str(site)]


def run_python(
    code: str, *words: object, folders: Sequence[str], cwd: Path, status: int = 0
) -> str:
    """Run Python with packages in these folders; return its output, after checking its exit
    status."""
    paths = [*folders, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr
