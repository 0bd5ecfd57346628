"""The emulated driver for processes that see installed packages alone: a package of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from farrier_device.devices import libcuda

MODULE = "emulated_cuda"
_HERE = Path(__file__).parent
_TEXT = """
from tests.targets.cuda.libcuda import Library

def library():
    return Library(codes=True)
"""


def install(folder, monkeypatch):
    """Have this process and its children open the emulated driver."""
    packages = folder / "site-packages"
    shutil.copytree(_HERE, packages / "tests/targets/cuda", ignore=shutil.ignore_patterns("test_*"))
    (packages / f"{MODULE}.py").write_text(_TEXT)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv(libcuda.MODULE, MODULE)
