"""A candidate that a job measures is recorded once, whatever dies or stops meanwhile."""

from __future__ import annotations

import collections
import os
import signal
import textwrap
from pathlib import Path

import pytest

from farrier.options import CompileOptions
from farrier_farm.leases.states import State
from tests.chaos.test_processes import MODEL, Plant, plant
from tests.here import TARGET
from tests.waiting import wait_until

__all__ = ["plant"]
pytestmark = pytest.mark.chaos

# A job that records six candidates; its first attempt waits in the middle while a file says so.
# What an attempt measures differs from what any other does.
JOB = """
    import pathlib, os, socket, sys, time
    from farrier.records import Context, TuningRecord
    from farrier_device.measurement import Status
    from farrier_worker.job_channel_client import JobChannelClient
    from farrier_worker.remote import RemoteRecords
    here = pathlib.Path(__file__).parent
    line = JobChannelClient(socket.socket(fileno=int(sys.argv[1])))
    attempt = line.order["attempt"]
    line.ready("")
    records = RemoteRecords(line)
    for number in range(6):
        if number == 3:
            (here / f"middle.{attempt}").write_text(str(os.getpid()))
            while (here / "hold-middle").exists() and attempt == 1:
                time.sleep(0.01)
        for context in (Context.ALONE, Context.MODEL):
            records.add(TuningRecord(
                "task", "target", 2, "rule", 1, (("tile", number),), "", Status.OK,
                (1000 * attempt + number,), created=float(time.time()), context=context))
    with open("artifact", "w+b") as file:
        line.finish(file.fileno(), {"attempt": attempt})
"""


def _recorded(plant: Plant) -> collections.Counter[tuple[object, ...]]:
    return collections.Counter((record.decisions, record.context) for record in plant.farm.records)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_an_attempt_measures_again_is_recorded_once(plant: Plant, how: str) -> None:
    (plant.marks / "job.py").write_text(textwrap.dedent(JOB))
    plant.hold("middle")
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    worker = plant.start_worker()
    pid = plant.reached("middle")
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    else:
        worker.send_signal(signal.SIGSTOP)
        plant.start_worker()
    job = plant.end(job_id)
    assert (job.state, job.report) == (State.SUCCEEDED, {"attempt": 2})
    plant.go_on("middle")
    worker.send_signal(signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())  # Its lease was refused, so it ends.
    recorded = _recorded(plant)
    assert len(recorded) == 12
    assert set(recorded.values()) == {1}
    by_attempt = collections.Counter(record.samples_ns[0] // 1000 for record in plant.farm.records)
    assert by_attempt == {1: 6, 2: 6}
