"""The libraries of other authors in `static/vendor`: npm packages, pinned by version and sha256.

    python -m farrier_server.dashboard.vendored            # compares the files with vendored.json
    python -m farrier_server.dashboard.vendored --fetch    # compares them with npm's packages, too
    python -m farrier_server.dashboard.vendored --update   # after a change: new files and hashes

vendored.json contains each package with its version and licence, and for each of its files in this
folder the path within the package and the SHA-256. The files are unchanged copies of the files in
the packages. `--fetch` and `--update` need npm."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).with_name("vendored.json")
FOLDER = Path(__file__).with_name("static") / "vendor"


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A file of a package: its path in this repository and in the package, and its SHA-256."""

    path: str  # below FOLDER
    source: str  # within the package
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class Package:
    """A package of the npm registry, with its version, licence and files."""

    name: str
    version: str
    license: str  # an SPDX identifier
    license_files: tuple[str, ...]  # paths below FOLDER
    files: tuple[File, ...]  # The files, including those of the licence.


def packages() -> list[Package]:
    """Return the packages that `vendored.json` names."""
    return [
        Package(
            name=raw["name"],
            version=raw["version"],
            license=raw["license"],
            license_files=tuple(raw["license_files"]),
            files=tuple(File(path, *file) for path, file in raw["files"].items()),
        )
        for raw in json.loads(MANIFEST.read_text())
    ]


def complaints(folder: Path = FOLDER) -> list[str]:
    """Return the differences between the files in a folder and `vendored.json`, one sentence
    each."""
    problems = []
    named = {file.path: file for package in packages() for file in package.files}
    for path, file in named.items():
        try:
            digest = hashlib.sha256((folder / path).read_bytes()).hexdigest()
        except FileNotFoundError:
            problems.append(f"{path} is missing")
            continue
        if digest != file.sha256:
            problems.append(f"{path} has the sha256 {digest}, not {file.sha256}")
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    problems += [f"{path} is not in {MANIFEST.name}" for path in sorted(there - named.keys())]
    for package in packages():
        missing = set(package.license_files) - {file.path for file in package.files}
        if missing or not package.license_files:
            problems.append(f"{package.name} has no licence text")
    return problems


def fetch(folder: Path) -> None:
    """Write the files of the pinned packages to a folder."""
    for package in packages():
        with tempfile.TemporaryDirectory() as scratch:
            command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
            subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(scratch).glob("*.tgz")
            with tarfile.open(archive) as members:
                for file in package.files:
                    member = members.extractfile(f"package/{file.source}")
                    assert member is not None, f"{package.name} has no file {file.source}"
                    target = folder / file.path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(member.read())


def _write_hashes() -> None:
    """Write the hashes of the present files to `vendored.json`."""
    manifest: list[dict[str, Any]] = json.loads(MANIFEST.read_text())
    for package in manifest:
        for path, file in package["files"].items():
            file[1] = hashlib.sha256((FOLDER / path).read_bytes()).hexdigest()
    MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--fetch", action="store_true", help="compare with npm's packages")
    action.add_argument("--update", action="store_true", help="take npm's files, and their hashes")
    options = parser.parse_args()
    if options.update:
        fetch(FOLDER)
        _write_hashes()
    problems = complaints()
    if options.fetch:
        with tempfile.TemporaryDirectory() as scratch:
            fetch(Path(scratch))
            problems += [f"npm's: {complaint}" for complaint in complaints(Path(scratch))]
    for complaint in problems:
        print(complaint, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
