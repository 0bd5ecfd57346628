"""The supervisor with real processes: success, failure, crashes, cancellation, draining."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.leases.states import State
from farrier_worker import attempt
from farrier_worker import supervisor as module
from tests.here import TARGET
from tests.waiting import wait_until

MODEL = b"what no program of these tests reads"


@pytest.fixture
def submit(farm: Farm):
    return lambda: farm.jobs.submit(farm.blobs.put(MODEL), CompileOptions(target=TARGET)).id


@pytest.fixture
def end_of(farm: Farm):
    """The job once its state is final."""

    def wait(job_id: str):
        return wait_until(lambda: (j := farm.jobs.get(job_id)).state.final and j)

    return wait


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_jobs_run_one_after_another(farm, submit, program, supervise, end_of) -> None:
    jobs = [submit() for _ in range(3)]
    supervise(
        program(
            """
            line.say(progress.StageStarted("import"))
            succeed({"attempt": attempt})
            """
        )
    )
    for job_id in jobs:
        job = end_of(job_id)
        assert (job.state, job.attempts, job.crashes) == (State.SUCCEEDED, 1, 0)
        assert job.report == {"attempt": 1}
        assert job.stage == "import"


def test_jobs_run_side_by_side(farm, submit, program, supervise) -> None:
    for _ in range(3):
        submit()
    supervise(program("time.sleep(60)"), jobs_at_once=2)
    wait_until(lambda: len(farm.jobs.list(state=State.RUNNING)[0]) == 2)
    assert len(farm.jobs.list(state=State.QUEUED)[0]) == 1


def test_a_job_whose_process_cannot_be_started_is_handed_back(farm, submit, supervise) -> None:
    job_id = submit()
    supervise(["/no/such/program"])
    wait_until(lambda: farm.jobs.get(job_id).attempts > 1)
    assert farm.jobs.get(job_id).crashes == 0


def test_a_job_that_is_cancelled_before_its_process_starts_does_not_end_the_worker(
    farm, submit, program, supervise, end_of, monkeypatch
) -> None:
    cancelled, attempt = submit(), module.Attempt

    def start(own, lease, *rest):
        if lease.item == cancelled:
            farm.cancel(lease.item)
            raise OSError("no more processes")
        return attempt(own, lease, *rest)

    monkeypatch.setattr(module, "Attempt", start)
    supervise(program("succeed({})"))
    assert end_of(submit()).state is State.SUCCEEDED
    assert farm.jobs.get(cancelled).state is State.CANCELLED


def test_unused_blobs_are_removed_while_jobs_run(
    farm, submit, program, supervise, monkeypatch
) -> None:
    unused = farm.blobs.put(b"of no job")
    os.utime(farm.blobs.path(unused), (0, 0))
    monkeypatch.setattr(module, "_GARBAGE_S", 0.3)
    job_id = submit()
    supervise(program("time.sleep(60)"))
    wait_until(lambda: farm.jobs.get(job_id).state is State.RUNNING)
    wait_until(lambda: not farm.blobs.has(unused))


def test_a_failure_is_no_crash(farm, submit, program, supervise, end_of) -> None:
    job_id = submit()
    supervise(
        program(
            """
            from farrier.errors import InvalidModelError
            line.fail(InvalidModelError("truncated", hint="export it again"))
            sys.exit(1)
            """
        )
    )
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.FAILED, 1, 0)
    assert job.error["code"] == "invalid-model"


@pytest.mark.parametrize(
    ("death", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.abort()", "killed by SIGABRT"),
        ("sys.exit(3)", "ended with code 3"),
        ("pass", "no result"),
        ("raise ValueError('tile 7 of 197')", "ValueError: tile 7 of 197"),
    ],
)
def test_two_crashes_kill_a_job_with_the_reason(
    farm, submit, program, supervise, end_of, death: str, reason: str
) -> None:
    job_id = submit()
    supervise(program(f"print('last words', file=sys.stderr, flush=True)\n{death}"))
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.DEAD, 2, 2)
    assert reason in job.error["message"]
    assert "last words" in job.error["message"]


def test_what_crashed_once_may_succeed(farm, submit, program, supervise, end_of) -> None:
    job_id = submit()
    supervise(
        program(
            """
            if attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            succeed({})
            """
        )
    )
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.SUCCEEDED, 2, 1)


def test_a_long_job_keeps_its_lease(farm, submit, program, supervise, end_of) -> None:
    job_id = submit()
    supervise(program("time.sleep(2.5); succeed({})"), lease_s=1.0)
    wait_until(lambda: farm.jobs.get(job_id).state is State.RUNNING)
    supervise(program("sys.exit(1)"), lease_s=1.0)  # This one would take the job over.
    assert (end_of(job_id).attempts, farm.jobs.get(job_id).worker) == (1, "worker-0")


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_a_cancelled_job_and_its_children_are_gone(
    farm, submit, program, supervise, tmp_path, verb: str
) -> None:
    job_id = submit()
    supervise(
        program(
            f"""
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "60"])
            with open({str(tmp_path / "pids")!r}, "w") as file:
                print(os.getpid(), child.pid, file=file)
            time.sleep(60)
            """
        )
    )
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    job, child = map(int, pids.read_text().split())
    assert _alive(job)
    assert _alive(child)
    getattr(farm, verb)(job_id)
    kept = None if verb == "delete" else State.CANCELLED
    assert farm.jobs.leases.state(job_id) is kept
    wait_until(lambda: not _alive(child))
    wait_until(lambda: not _alive(job))  # it ignored SIGTERM
    assert farm.jobs.leases.state(job_id) is kept
    following = submit()  # The worker continues.
    wait_until(lambda: farm.jobs.get(following).state is State.RUNNING)


def test_children_do_not_outlive_the_job(
    farm, submit, program, supervise, end_of, tmp_path
) -> None:
    job_id = submit()
    supervise(
        program(
            f"""
            child = subprocess.Popen(["sleep", "60"])
            open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
            succeed({{}})
            os._exit(0)
            """
        )
    )
    assert end_of(job_id).state is State.SUCCEEDED
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not _alive(child))


def test_draining_lets_short_jobs_end(farm, submit, program, supervise) -> None:
    short, left = submit(), submit()
    worker = supervise(program("time.sleep(0.5); succeed({})"), drain_s=30.0)
    wait_until(lambda: farm.jobs.get(short).state is State.RUNNING)
    worker.drain()
    wait_until(lambda: farm.jobs.get(short).state is State.SUCCEEDED)
    wait_until(lambda: worker.name not in {thread.name for thread in threading.enumerate()})
    assert farm.jobs.get(left).state is State.QUEUED


def test_draining_hands_long_jobs_back(farm, submit, program, supervise) -> None:
    job_id = submit()
    worker = supervise(program("time.sleep(60)"))
    wait_until(lambda: farm.jobs.get(job_id).state is State.RUNNING)
    begin = time.monotonic()
    worker.drain()
    job = wait_until(lambda: (j := farm.jobs.get(job_id)).state is State.QUEUED and j)
    assert time.monotonic() - begin < 3
    assert (job.attempts, job.crashes, job.worker) == (1, 0, None)


def test_trouble_of_the_farm_is_no_crash(
    farm, submit, program, supervise, end_of, installation, tmp_path
) -> None:
    pid = tmp_path / "pid"
    job_id = submit()
    supervise(
        program(
            f"""
            from farrier_worker.remote import RemoteRecords
            if attempt == 1:
                open({str(pid)!r}, "w").write(str(os.getpid()))
            while attempt == 1:
                RemoteRecords(line).find("task", "target")
            succeed({{}})
            """
        )
    )
    wait_until(lambda: pid.exists() and pid.read_text())
    installation.stop_redis()
    wait_until(lambda: not _alive(int(pid.read_text())))
    installation.start_redis()
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.SUCCEEDED, 2, 0)


def test_a_process_that_says_what_no_job_says_crashes_with_the_reason(
    submit, program, supervise, end_of
) -> None:
    job_id = submit()
    supervise(program("line._send({'say': {'kind': 'state'}}); time.sleep(60)"))
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.DEAD, 2, 2)
    assert "malformed message: ValueError: event: 'state' is not a kind" in job.error["message"]


# Each process holds 120 MB, and the job has a child that does so, too.
HUNGRY = """
    hold = "import os, time; held = bytearray(os.urandom(1 << 20)) * 120; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", hold])
    open({pids!r}, "w").write(f"{{os.getpid()}} {{child.pid}} ")
    exec(hold)
"""


def test_a_job_whose_processes_hold_too_much_fails_at_once(
    farm, submit, program, supervise, end_of, tmp_path
) -> None:
    """No process alone reaches the limit."""
    pids = tmp_path / "pids"
    job_id = submit()
    supervise(program(HUNGRY.format(pids=str(pids))), job_memory_bytes=200 << 20)
    job = end_of(job_id)
    assert (job.state, job.attempts, job.crashes) == (State.FAILED, 1, 0)
    assert job.error["code"] == "storage"
    assert f"needs more than {200 << 20} bytes" in job.error["message"]
    assert "FARRIER_JOB_MEMORY_BYTES" in job.error["hint"]
    for pid in map(int, pids.read_text().split()):
        wait_until(lambda pid=pid: not _alive(pid))


def test_a_watch_that_could_not_look_looks_again(
    farm, submit, program, supervise, end_of, monkeypatch, caplog
) -> None:
    """As where the supervisor has no descriptor left for a while."""
    held_bytes, looks = attempt.held_bytes, []

    def held(*args, **more):
        looks.append(args)
        if len(looks) <= 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return held_bytes(*args, **more)

    monkeypatch.setattr(attempt, "held_bytes", held)
    job_id = submit()
    supervise(program("held = b'x' * (150 << 20); time.sleep(60)"), job_memory_bytes=100 << 20)
    assert end_of(job_id).error["code"] == "storage"
    said = [record.getMessage() for record in caplog.records if "cannot be read" in record.msg]
    assert len(said) == 1
    assert job_id in said[0]
    assert "Too many open files" in said[0]


def test_a_job_that_held_too_much_fails_once_redis_answers_again(
    farm, submit, program, supervise, end_of, installation, tmp_path
) -> None:
    """It is watched while the supervisor waits for Redis."""
    pid, go = tmp_path / "pid", tmp_path / "go"
    job_id = submit()
    supervise(
        program(
            f"""
            open({str(pid)!r}, "w").write(str(os.getpid()))
            while not os.path.exists({str(go)!r}):
                time.sleep(0.02)
            held = bytearray(os.urandom(1 << 20)) * 240
            time.sleep(60)
            """
        ),
        job_memory_bytes=200 << 20,
    )
    wait_until(lambda: pid.exists() and pid.read_text())
    with installation.redis_stands_still():
        go.touch()
        wait_until(lambda: not _alive(int(pid.read_text())))
    job = end_of(job_id)
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert "FARRIER_JOB_MEMORY_BYTES" in job.error["hint"]


def test_what_a_job_maps_of_a_file_is_not_counted(
    farm, submit, program, supervise, end_of, tmp_path
) -> None:
    """It reads every page of 300 MB, and holds them in sight for two looks at its memory."""
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(300 << 20)
    job_id = submit()
    supervise(
        program(
            f"""
            import mmap, resource
            from farrier_worker.memory import held_bytes, limit_this_process
            limit_this_process(line.order["memory_bytes"])
            with open({str(tmp_path / "weights")!r}, "rb") as file:
                weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            seen = sum(weights[::4096])
            time.sleep(0.6)
            peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            held = held_bytes(os.getpgrp())
            succeed({{"peak": peak, "held": held}})
            """
        ),
        job_memory_bytes=150 << 20,
    )
    job = end_of(job_id)
    assert job.state is State.SUCCEEDED, job.error
    assert job.report["peak"] > 300 << 20
    assert 10 << 20 < job.report["held"] < 150 << 20


def test_more_than_a_watch_could_notice_is_refused_when_it_is_asked_for(
    farm, submit, program, supervise, end_of
) -> None:
    job_id = submit()
    supervise(
        program(
            """
            from farrier_worker.memory import limit_this_process, out_of_memory
            limit_this_process(line.order["memory_bytes"])
            try:
                bytearray(1 << 40)
            except MemoryError:
                line.fail(out_of_memory(line.order["memory_bytes"]))
            """
        ),
        job_memory_bytes=1 << 30,
    )
    job = end_of(job_id)
    assert (job.state, job.attempts) == (State.FAILED, 1)
    assert "FARRIER_JOB_MEMORY_BYTES" in job.error["hint"]
