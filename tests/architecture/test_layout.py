"""The repository's top level is what its readers were promised, and holds nothing else."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROLES = {"compiler", "farm", "rpc_device", "server", "worker"}
AROUND = {".ci", "bench", "docs", "tests"}
FILES = {
    ".dockerignore",
    ".gitignore",
    "LICENSE",
    "Makefile",
    "README.md",
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
