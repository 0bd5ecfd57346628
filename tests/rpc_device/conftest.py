"""Kernels for the device's tests, linked with the real support library once a run."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from farrier_device import sandbox
from farrier_device.runners import children
from farrier_device.runners.children import Children
from farrier_device.runners.local import ChildRunner
from tests.rpc_device.doubling import Doubling, linked_kernels

sys.path.insert(0, str(Path(__file__).parent))  # for `small_broker`


class Folder:
    """A blob source that is a plain directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        (self.root / sha256).write_bytes(data)
        return sha256

    def path(self, sha256: str) -> Path:
        file = self.root / sha256
        if not file.exists():
            raise KeyError(sha256)
        return file


@pytest.fixture(scope="session")
def library() -> bytes:
    return linked_kernels()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "blobs"
    root.mkdir()
    return Folder(root)


@pytest.fixture
def doubling(folder: Folder) -> Doubling:
    return Doubling(folder.add, seed=7)


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


STRANGE = Path(__file__).with_name("strange")


@pytest.fixture
def strange(monkeypatch):
    """`strange(module)`: children of a fork server of `strange/`."""
    monkeypatch.setattr(
        sandbox,
        "_BOOTSTRAP",
        f"import sys; sys.path[:0] = [sys.argv[1], {str(STRANGE)!r}]; import {{0}}; "
        "{0}.main(sys.argv[2:])",
    )

    def of_module(module):
        monkeypatch.setattr(children, "_FORK_SERVER", module)
        return Children(sandbox.Limits.of_machine(), "")

    return of_module
