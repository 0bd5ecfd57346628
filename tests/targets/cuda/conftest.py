"""A driver over the emulator, in the place of libcuda."""

from __future__ import annotations

import pytest

from farrier_device.devices import libcuda as driver
from tests.targets.cuda.libcuda import Library


@pytest.fixture
def library(monkeypatch):
    """Return the library that devices of this process open."""
    emulated = Library()
    monkeypatch.setattr(driver, "_loaded", lambda: emulated)
    return emulated
