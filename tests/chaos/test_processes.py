"""Processes die and stop at any moment; what was acknowledged stays, and effects happen once."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from farrier.errors import FarrierError
from farrier.options import CompileOptions
from farrier_device.describe import describe
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_farm.redis import embedded
from farrier_farm.settings import Settings
from tests.device_side import BlockingDeviceSide
from tests.here import TARGET
from tests.waiting import wait_until

pytestmark = pytest.mark.chaos

MODEL_BYTES = b"what no job of these tests reads"
MODEL = hashlib.sha256(MODEL_BYTES).hexdigest()
WORKER = """
    import sys
    from farrier_farm.settings import Settings
    from farrier_worker.main import run
    sys.exit(run(Settings.from_environment(), command=[sys.executable, sys.argv[1]]))
"""
# A job of three steps. Each attempt writes its pid; a file named after the step makes it wait
# there.
JOB = """
    import os, pathlib, socket, sys, threading, time
    from farrier import progress
    from farrier_worker.job_channel_client import JobChannelClient
    here = pathlib.Path(__file__).parent
    line = JobChannelClient(socket.socket(fileno=int(sys.argv[1])))
    attempt = line.order["attempt"]
    line.ready("")
    def reached(step):
        (here / f"{step}.{attempt}").write_text(str(os.getpid()))
        while (here / f"hold-{step}").exists() and attempt == 1:
            time.sleep(0.01)
    reached("begin")
    line.say(progress.StageStarted("tune"))
    reached("middle")
    line.say(progress.Warned(f"attempt {attempt}"))
    with open("artifact", "w+b") as file:
        threading.Timer(0.5, reached, ["said"]).start()
        line.finish(file.fileno(), {"attempt": attempt})
    reached("end")
"""


@dataclasses.dataclass
class Plant:
    """A farm whose workers are processes, and the directory in which jobs leave their marks."""

    settings: Any
    valkey: embedded.Embedded
    marks: Path
    farm: Farm
    workers: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)

    def start_worker(self) -> subprocess.Popen[bytes]:
        self.workers.append(
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(WORKER), self.marks / "job.py"],
                env={**os.environ, **self.settings.to_environment()},
            )
        )
        return self.workers[-1]

    def hold(self, step: str) -> None:
        (self.marks / f"hold-{step}").touch()

    def go_on(self, step: str) -> None:
        (self.marks / f"hold-{step}").unlink()

    def reached(self, step: str, attempt: int = 1) -> int:
        """The pid of the attempt, once it is there."""
        mark = self.marks / f"{step}.{attempt}"
        return int(wait_until(lambda: mark.exists() and mark.read_text()))

    def end(self, job_id: str) -> Any:
        job = wait_until(lambda: (j := self.farm.jobs.get(job_id)).state.final and j)
        states = [e.data["state"] for e in self.farm.events.read(job_id) if "state" in e.data]
        assert sum(State(state).final for state in states) == 1
        return job


@pytest.fixture
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    home, marks = tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("marks")
    settings = Settings(home=home, min_free_bytes=0, lease_s=1.0, grace_s=0.5, drain_s=0.2)
    (marks / "job.py").write_text(textwrap.dedent(JOB))
    valkey = embedded.start(settings)
    plant = Plant(settings, valkey, marks, Farm.open(settings))
    plant.farm.blobs.put(MODEL_BYTES)
    yield plant
    for worker in plant.workers:
        worker.send_signal(signal.SIGCONT)
        worker.terminate()
    for worker in plant.workers:
        worker.wait(20)
    plant.farm.close()
    valkey.stop()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("step", ["begin", "middle"])
@pytest.mark.parametrize("victim", ["worker", "job", "both"])
def test_kill_9_before_the_end(plant: Plant, step: str, victim: str) -> None:
    plant.hold(step)
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    worker = plant.start_worker()
    pid = plant.reached(step)
    if victim != "job":
        worker.kill()
        wait_until(lambda: not _alive(pid))  # It does not outlive its worker.
        plant.start_worker()
    else:
        os.kill(pid, signal.SIGKILL)
    job = plant.end(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.SUCCEEDED, 2, 1)
    assert job.report == {"attempt": 2}


def test_kill_9_after_the_end_was_recorded(plant: Plant) -> None:
    plant.hold("end")
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    plant.start_worker()
    os.kill(plant.reached("end"), signal.SIGKILL)
    plant.workers[0].kill()
    plant.start_worker()
    following = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    assert plant.end(following).state is State.SUCCEEDED
    job = plant.end(job_id)
    assert (job.state, job.attempts, job.report) == (State.SUCCEEDED, 1, {"attempt": 1})


@pytest.mark.parametrize("step", ["begin", "middle"])
def test_a_worker_that_was_stopped_comes_back_too_late(plant: Plant, step: str) -> None:
    plant.hold(step)
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    stopped = plant.start_worker()
    pid = plant.reached(step)
    stopped.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGSTOP)
    plant.start_worker()
    job = plant.end(job_id)
    assert job.report == {"attempt": 2}
    plant.go_on(step)
    os.kill(pid, signal.SIGCONT)
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: not _alive(pid))
    after = plant.farm.jobs.get(job_id)
    assert (after.report, after.attempts) == ({"attempt": 2}, 2)
    said = [e.data["message"] for e in plant.farm.events.read(job_id) if "message" in e.data]
    assert said == ["attempt 2"]
    following = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    assert plant.end(following).state is State.SUCCEEDED


def test_a_job_that_goes_on_while_its_worker_is_stopped_records_nothing(plant: Plant) -> None:
    plant.hold("middle")
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    stopped = plant.start_worker()
    plant.reached("middle")
    stopped.send_signal(signal.SIGSTOP)
    plant.start_worker()
    assert plant.end(job_id).report == {"attempt": 2}
    plant.go_on("middle")
    pid = plant.reached("said")  # It has reported its end, which nobody has read yet.
    stopped.send_signal(signal.SIGCONT)
    wait_until(lambda: not _alive(pid))
    assert not (plant.marks / "end.1").exists()
    assert plant.farm.jobs.get(job_id).report == {"attempt": 2}
    said = [e.data["message"] for e in plant.farm.events.read(job_id) if "message" in e.data]
    assert said == ["attempt 2"]


# A job that kills its worker before it has done anything else.
KILLER = """
    import os, pathlib, signal, sys, time
    pathlib.Path(__file__).with_name(f"begin.{sys.argv[3]}").write_text(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
"""


def test_a_job_that_brings_down_two_workers_is_dead(plant: Plant) -> None:
    (plant.marks / "job.py").write_text(textwrap.dedent(KILLER))
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    for attempt in (1, 2):
        plant.start_worker().wait(20)
        pid = plant.reached("begin", attempt)
        wait_until(lambda pid=pid: not _alive(pid))  # It does not outlive its worker.
    plant.start_worker()
    job = plant.end(job_id)
    assert (job.state, job.attempts) == (State.DEAD, 2)
    assert "stopped renewing" in job.error["message"]


def test_kill_9_of_everything(plant: Plant) -> None:
    plant.hold("middle")
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET), idempotency_key="k").id
    worker = plant.start_worker()
    plant.reached("middle")
    for pid in (worker.pid, plant.valkey.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(plant.valkey.revive)
    assert (
        plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET), idempotency_key="k").id
        == job_id
    )
    plant.start_worker()
    assert plant.end(job_id).report == {"attempt": 2}


def test_kill_9_of_everything_while_a_job_waits_for_a_device(plant: Plant) -> None:
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET), wait_for_device=True).id
    worker = plant.start_worker()
    following = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    assert plant.end(following).attempts == 1  # No worker is blocked.
    for pid in (worker.pid, plant.valkey.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(plant.valkey.revive)
    plant.start_worker()
    following = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    assert plant.end(following).attempts == 1
    job = plant.farm.jobs.get(job_id)
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    with BlockingDeviceSide(plant.farm) as device_side:
        device_side.connect("board", dataclasses.asdict(describe()))
    assert plant.end(job_id).report == {"attempt": 1}


def test_the_server_dies_under_a_running_job(plant: Plant) -> None:
    plant.settings = dataclasses.replace(plant.settings, lease_s=20.0)
    plant.hold("middle")
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    plant.start_worker()
    plant.reached("middle")
    os.kill(plant.valkey.pid, signal.SIGKILL)
    wait_until(plant.valkey.revive)
    plant.go_on("middle")
    assert plant.end(job_id).report == {"attempt": 1}  # nobody noticed


def test_redis_stands_still_for_longer_than_a_lease_lasts(plant: Plant) -> None:
    """Nobody could renew, so nobody loses anything, though another worker asks first."""
    plant.settings = dataclasses.replace(plant.settings, lease_s=4.0)
    plant.hold("middle")
    job_id = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id
    holder = plant.start_worker()
    plant.reached("middle")
    plant.start_worker()
    pid = plant.valkey.pid
    holder.send_signal(signal.SIGSTOP)  # The other worker then asks first.
    os.kill(pid, signal.SIGSTOP)
    time.sleep(5.0)
    os.kill(pid, signal.SIGCONT)
    time.sleep(1.0)
    holder.send_signal(signal.SIGCONT)
    plant.go_on("middle")
    assert plant.end(job_id).report == {"attempt": 1}


def test_submits_that_race_with_the_death_of_the_server(plant: Plant) -> None:
    """Every acknowledged submit is there afterwards; a repeated one makes no second job."""
    acknowledged: dict[str, str] = {}
    stop = threading.Event()

    def submit(client: int) -> None:
        farm = Farm.open(plant.settings)
        for number in range(100_000):
            if stop.is_set():
                break
            key = f"{client}-{number}"
            try:
                job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET), idempotency_key=key)
            except FarrierError:
                break
            acknowledged[key] = job.id
        farm.close()

    threads = [threading.Thread(target=submit, args=(client,)) for client in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.2)
        os.kill(plant.valkey.pid, signal.SIGKILL)
        wait_until(plant.valkey.revive)
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert len(acknowledged) > 50
    for key, job_id in acknowledged.items():
        assert plant.farm.jobs.get(job_id).state is State.QUEUED
        again = plant.farm.jobs.submit(MODEL, CompileOptions(target=TARGET), idempotency_key=key)
        assert again.id == job_id
    total = len(plant.farm.jobs.leases.members(state=State.QUEUED, limit=1_000_000))
    assert len(acknowledged) <= total <= len(acknowledged) + len(threads)


SLOW_DISK = """
int usleep(unsigned microseconds);
int fdatasync(int file) { (void)file; usleep(1000000); return 0; }
int fsync(int file) { (void)file; usleep(1000000); return 0; }
"""


def test_kill_9_while_the_disk_is_slow(tmp_path_factory, monkeypatch) -> None:
    """Redis that syncs in the background answers before it writes, while a sync is under way."""
    home, library = tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("slow") / "slow.so"
    (source := library.with_suffix(".c")).write_text(SLOW_DISK)
    # It avoids the C library, which zig would have to compile at first use.
    compile_shared = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-nostdlib"]
    subprocess.run([*compile_shared, source, "-o", library], check=True, timeout=60)
    settings = Settings(home=home, min_free_bytes=0)
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        valkey = embedded.start(settings)
    farm = Farm.open(settings)
    try:
        acknowledged = []
        begin = time.monotonic()
        while time.monotonic() - begin < 3.5:
            acknowledged.append(farm.jobs.submit(MODEL, CompileOptions(target=TARGET)).id)
        os.kill(valkey.pid, signal.SIGKILL)
        wait_until(valkey.revive)
        assert acknowledged
        assert {farm.jobs.get(job_id).id for job_id in acknowledged} == set(acknowledged)
    finally:
        farm.close()
        valkey.stop()
