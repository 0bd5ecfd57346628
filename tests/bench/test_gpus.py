"""`make gpus`: the sources of a newer driver, and one sentence where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from bench.gpus import drivers, ranks
from tests.ir.kernels import product

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


def test_ranks_of_equal_values_are_shared():
    assert ranks.rank_correlation([1, 2, 3, 4], [10, 20, 20, 90]) == pytest.approx(0.9486833)
    assert ranks.rank_correlation([1, 2, 3], [3, 2, 1]) == -1
    assert np.isnan(ranks.rank_correlation([1, 2], [5, 5]))


def test_operators_and_bytes_are_counted_as_often_as_loops_run():
    """Each element of a tile of 4 x 4 sums reads both factors once for a block of four."""
    small, large = (ranks.counts(product(16, 16, depth)) for depth in (8, 16))
    assert large[0] > 1.5 * small[0]
    stored = 4 * 16 * 16
    assert large[1] - stored == 2 * (small[1] - stored) > 0
