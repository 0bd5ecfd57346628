"""A job raced with other engines, as its user asks for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import farrier
from farrier_device.baseline.engines import NAMES, installed
from tests.up import Up

AGAINST = [word for name in NAMES for word in ("--against", name)]


@pytest.fixture(scope="module")
def racing_up() -> Iterator[Up]:
    """One whose device runs other engines."""
    home = Path(tempfile.mkdtemp(prefix="farrier-"))
    running = Up(home, FARRIER_ENGINES="1").start()
    yield running
    running.clean_up()
    shutil.rmtree(home, ignore_errors=True)


def test_a_job_is_raced_where_the_device_has_the_engines(racing_up, model, tmp_path):
    listed = racing_up.command("devices").stdout
    assert all(f"{name} {version}" in listed for name, version in installed().items())
    submitted = racing_up.command("submit", model, *AGAINST, "--watch")
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.split()[0]
    with racing_up.client() as client:
        done = client.job(job)
        fetched = client.fetch(job, tmp_path / "net.farrier")
    assert done.against == NAMES
    raced = done.report["against"]
    assert [result["engine"] for result in raced] == list(NAMES)
    for result in raced:
        assert result["note"] == ""
        assert min(result["ms"]["median"], result["ours_ms"]["median"], result["ratio"]) > 0
        line = f"{result['engine']} {result['version']} on local: {result['ms']['median']:.5f}"[:-1]
        assert line in submitted.stderr
    assert farrier.load(fetched).report["against"] == raced


def test_a_job_goes_on_where_no_device_has_them(up, model):
    submitted = up.command("submit", model, *AGAINST, "--watch")
    assert submitted.returncode == 0, submitted.stderr
    for name in NAMES:
        assert f"warning: the model is not raced with {name}" in submitted.stderr
    assert "pip install 'farrier[device,engines]'" in submitted.stderr
    with up.client() as client:
        assert client.job(submitted.stdout.split()[0]).report["against"] == []


def test_an_engine_that_nobody_knows_is_refused(up, model):
    submitted = up.command("submit", model, "--against", "tensorrt")
    assert (submitted.returncode, "tensorrt" in submitted.stderr) == (2, True)
