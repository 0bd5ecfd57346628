"""Kernels for the device's tests, linked with the real support library once a run."""

from __future__ import annotations

import array
import hashlib
import random
import sys
from pathlib import Path

import pytest

from farrier.targets import host
from farrier.targets.cpu.codegen.compile import compile_text
from farrier.targets.cpu.codegen.link import link
from farrier.targets.cpu.codegen.support import support_object
from farrier_device.measurement import Argument, Candidate, Role
from farrier_device.runners.local import ChildRunner

sys.path.insert(0, str(Path(__file__).parent))  # for `small_broker`

COUNT = 1009  # elements of a test array: a prime


class Folder:
    """A blob source that is a plain directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        (self.root / sha256).write_bytes(data)
        return sha256

    def path(self, sha256: str) -> Path:
        found = self.root / sha256
        if not found.exists():
            raise KeyError(sha256)
        return found


class Doubling:
    """A task: y = 2x over f32[COUNT], its blobs, and candidates for it."""

    def __init__(self, folder: Folder, seed: int) -> None:
        x = array.array("f", (random.Random(seed).uniform(-4, 4) for _ in range(COUNT)))
        self.x, self.y = x.tobytes(), array.array("f", (2 * value for value in x)).tobytes()
        self.input, self.output = folder.add(self.x), folder.add(self.y)

    def candidate(
        self, symbol: str, *, cold: bool = False, prepare: str | None = None
    ) -> Candidate:
        nbytes = 4 * COUNT
        args = (
            Argument(Role.INPUT, nbytes, blob=self.input, cold=cold),
            Argument(Role.OUTPUT, nbytes, expected=self.output),
            Argument(Role.SCRATCH, nbytes),
        )
        return Candidate(symbol, args, prepare)


@pytest.fixture(scope="session")
def library() -> bytes:
    """The linked library of `kernels.ll`."""
    text = (Path(__file__).parent / "kernels.ll").read_text()
    target = host()
    return link([compile_text(text, target), support_object(target)])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "blobs"
    root.mkdir()
    return Folder(root)


@pytest.fixture
def doubling(folder: Folder) -> Doubling:
    return Doubling(folder, seed=7)


@pytest.fixture(scope="module")
def runner():
    with ChildRunner() as shared:
        yield shared


@pytest.fixture
def broker():
    """A broker of this process, listening."""
    from small_broker import SmallBroker

    running = SmallBroker()
    running.start()
    yield running
    running.stop()
