"""`make gpus`: the sources of a newer driver, and one sentence where there is none."""

from __future__ import annotations

import pytest

from bench.gpus import drivers

SOURCES = """Types: deb
URIs: http://deb/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb/debian-security
Suites: bookworm-security
Components: main
"""


def test_backports_of_the_suite_that_is_installed():
    text = drivers.backports(SOURCES)
    assert "Suites: bookworm-backports\n" in text
    assert "security" not in text
    assert text.count("Types:") == 1
    with pytest.raises(drivers.NoGpuError, match="names no suite"):
        drivers.backports("Types: deb\n")


def test_without_root_a_driver_is_not_installed(monkeypatch):
    monkeypatch.setattr(drivers, "_why_not", lambda variables: "no adapter")
    monkeypatch.setattr(drivers.os, "geteuid", lambda: 1000)
    with pytest.raises(drivers.NoGpuError, match="takes root") as error:
        drivers.set_up_naga(print)
    assert "mesa-vulkan-drivers" in error.value.hint
