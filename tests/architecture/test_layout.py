"""The repository's top level is what its readers were promised, and holds nothing else."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLES = {"compiler", "farm", "rpc_device", "server", "worker"}
AROUND = {".github", ".ci", "bench", "docs", "examples", "tests"}
# Their parts are rooms of their own.
PARTED = ("frontends", "frontends/onnx", "targets")
FILES = {
    ".dockerignore",
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "docker-compose.yml",
    "pyproject.toml",
}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no clone: nothing is tracked")
def test_nothing_else_lies_at_the_top():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = {name.partition("/")[0] for name in listed.stdout.split("\0") if name}
    assert names == ROLES | AROUND | FILES


def test_every_room_of_the_compiler_has_its_place_in_the_layers():
    """import-linter checks the packages in its contract; this checks that the contract has all
    packages."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (
        contract["layers"]
        for contract in contracts["contracts"]
        if contract["name"].startswith("the rooms of the compiler")
    )
    listed = {name for layer in layers for name in re.split(r" [|:] ", layer)}
    compiler = ROOT / "compiler/farrier"
    rooms = {path.parent.name for path in compiler.glob("*/__init__.py")} - set(PARTED)
    rooms |= {path.stem for path in compiler.glob("*.py")} - {"__init__"}
    for folder in PARTED:
        room = folder.replace("/", ".")
        rooms |= {f"{room}.{path.parent.name}" for path in compiler.glob(f"{folder}/*/__init__.py")}
        rooms |= {f"{room}.{path.stem}" for path in compiler.glob(f"{folder}/*.py")}
        rooms -= {room, f"{room}.__init__"}
    assert listed == {f"farrier.{room}" for room in rooms}


def test_the_loose_files_of_the_compiler_are_its_face():
    loose = {path.name for path in (ROOT / "compiler/farrier").glob("*.py")}
    assert loose == {"__init__.py", "api.py", "errors.py", "pipeline.py"}
