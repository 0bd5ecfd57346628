"""Tests of the tuning process: a real one, which ends with the process that it tunes for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import farrier
from bench import models
from farrier.background import State
from farrier.background.process import TuningProcess
from farrier.errors import StorageError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.progress import TimeSpent, Warned
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
MODEL = models.build("mobilenet_v2", size=32, stages=1)
LONG_S = 600.0  # No test waits for that.
PARENT = """
import sys, threading, time
import farrier

searches = threading.Event()

def listener(event):
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours and getattr(event, "stage", "") == "schedule":
        searches.set()

artifact = farrier.compile(
    sys.argv[1], budget_s=600, threads=1, verify=False, background=True, listener=listener
)
searches.wait()
print(artifact.tuning._process.pid, flush=True)
if sys.argv[2] == "stay":
    time.sleep(600)
"""


def gone(pid):
    """Comes back once a process, and its group, is gone."""

    def is_gone():
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(is_gone)


def emptied(folder):
    """Comes back once nothing is in a folder."""
    wait_until(lambda: not any(folder.iterdir()))


def test_a_model_in_use_is_tuned():
    events = []
    artifact = farrier.compile(MODEL, trials=24, threads=1, background=True, listener=events.append)
    tuning, inputs = artifact.tuning, random_inputs(artifact.manifest.inputs)
    session = artifact.session()
    (expected,) = session.run(inputs).values()
    while tuning.wait(0.01) is State.RUNNING:
        (y,) = session.run(inputs).values()
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert (tuning.state, tuning.error) == (State.FINISHED, None)
    assert [type(event) for event in events].count(TimeSpent) == 1
    assert tuning.versions[0].median_ms > 0
    assert tuning.current is tuning.versions[-1]
    assert session.manifest == artifact.manifest
    assert len(tuning.versions) == 1 + bool(artifact.report["tuned_is_faster"])
    for version in tuning.versions[1:]:
        assert version.median_ms > 0
        assert version.untuned_ms > 0


def test_a_process_that_is_killed_leaves_the_artifact_as_it_is():
    events = []
    artifact = farrier.compile(
        MODEL, budget_s=LONG_S, threads=1, verify=False, background=True, listener=events.append
    )
    code = artifact.code
    os.kill(artifact.tuning._process.pid, signal.SIGKILL)
    assert artifact.tuning.wait(60) is State.FAILED
    assert "killed by SIGKILL" in artifact.tuning.error.message
    assert isinstance(events[-1], Warned)
    assert artifact.code == code
    artifact.run(random_inputs(artifact.manifest.inputs))


def test_a_stop_ends_the_process_and_all_that_it_has_started():
    artifact = farrier.compile(MODEL, budget_s=LONG_S, threads=1, verify=False, background=True)
    artifact.tuning.stop()
    assert artifact.tuning.state is State.STOPPED
    gone(artifact.tuning._process.pid)


@pytest.mark.long
@pytest.mark.parametrize("how", ["leave", "interrupt", "kill"])
def test_nothing_is_left_behind_when_its_parent_ends(how, tmp_path):
    model, folder = tmp_path / "model.onnx", tmp_path / "temporary"
    model.write_bytes(MODEL)
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model), "leave" if how == "leave" else "stay"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
    )
    with parent:
        pid = int(parent.stdout.readline())
        if how == "interrupt":
            parent.send_signal(signal.SIGINT)
        elif how == "kill":
            parent.kill()
    gone(pid)
    emptied(folder)


@pytest.mark.parametrize("settings", [{}, {"trials": 0}, {"budget_s": 0}])
def test_nothing_to_do_is_said_at_once(settings):
    with pytest.raises(UsageError, match="nothing to do in the background"):
        farrier.compile(MODEL, background=True, **settings)


def test_another_machine_s_code_cannot_be_tuned_here():
    with pytest.raises(UsageError, match="cannot be measured"):
        farrier.compile(MODEL, target="rpi5", verify=False, budget_s=9, background=True)


def test_a_folder_that_cannot_be_made_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    options = CompileOptions(trials=8)
    with pytest.raises(StorageError, match="cannot be started"):
        TuningProcess(Model.of_bytes(MODEL), options)
