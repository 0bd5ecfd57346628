"""The whole service as users start it, `farrier up`, on free ports and in a home of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.up import Up, write_model


@pytest.fixture
def make_up() -> Iterator[Callable[..., Up]]:
    """Homes for `farrier up`, with short paths for the sake of the socket in them."""
    started: list[Up] = []

    def make(**settings: str) -> Up:
        started.append(Up(Path(tempfile.mkdtemp(prefix="farrier-")), **settings))
        return started[-1]

    yield make
    for up in started:
        up.clean_up()
        shutil.rmtree(up.home, ignore_errors=True)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A farm that runs for all tests of a module."""
    running = Up(Path(tempfile.mkdtemp(prefix="farrier-"))).start()
    yield running
    running.clean_up()
    shutil.rmtree(running.home, ignore_errors=True)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "net.onnx")


@pytest.fixture
def tls() -> tuple[Path, Path]:
    """A self-signed certificate and its key, for the tests alone."""
    folder = Path(__file__).parents[1] / "rpc_device" / "tls"
    return folder / "certificate.pem", folder / "key.pem"
