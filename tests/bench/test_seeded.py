"""`python -m bench.seeded`: a farm with something of everything, that lasts."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.seeded.names import HOSTILE
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="farrier-"))  # The path of a Unix socket has to be short.
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _command(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "bench.seeded", str(home), "--jobs", "45", *words]


def test_a_seeded_farm_has_jobs_of_all_states_and_devices_of_all_moods(home):
    words = _command(home, "--trials", "200", "--long", "64")
    output = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.startswith("45 jobs, 264 trials and 14 devices")
    settings = Settings(home=home, min_free_bytes=0)
    valkey = embedded.start(settings)
    try:
        with contextlib.closing(Farm.open(settings)) as farm:
            jobs, _ = farm.jobs.list(limit=200)
            assert {job.state for job in jobs} == set(State)
            assert len(jobs) == 46
            assert {job.name for job in jobs} & set(HOSTILE)
            assert farm.records.count() == pytest.approx(264, abs=16)  # rounded shares
            curves = [farm.curves.read(job.id, 500, 100) for job in jobs]
            assert max(len(curve.points) for curve in curves) > 3
            assert any(curve.tasks for curve in curves)
            states = {device.state for device in farm.devices.list()}
            assert {"busy", "idle", "quarantined", "unfit", "offline"} <= states
            assert farm.overview().devices.quarantined > 0
    finally:
        valkey.stop()


def test_bad_words(home):
    command = _command(home / ("x" * 120))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "too long for a unix socket" in done.stderr
