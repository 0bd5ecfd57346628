"""The builder's role with real processes and the real compiler, and jobs that use it by their
lines."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farrier.compile_pool import Built, CompilePool
from farrier.compile_pool import helpers as helpers_module
from farrier.options import CompileOptions
from farrier_device import wire
from farrier_farm.access.tokens import TokenRole, load_token
from farrier_farm.farm import Farm
from farrier_worker.build_process import BUILD_COMMAND, BuildProcess
from farrier_worker.builder import Builder
from farrier_worker.remote import RemoteBuilders
from farrier_worker.sandboxed_process import ProcessEndedError
from tests.compile_pool.conftest import THREADS, build_inputs, choices, target  # noqa: F401
from tests.here import TARGET
from tests.waiting import wait_until
from tests.worker.test_confinement import _offered
from tests.worker.test_remote import Served

# A compiling process with its walls, which does `act` with a message instead of compiling it.
PROCESS = """
    import json, os, signal, socket, sys, time
    import farrier.compile_pool.helper
    from farrier_worker import build
    def act(message):
        {act}
    farrier.compile_pool.helper.build = act
    sys.exit(build.main(sys.argv[1:]))
"""


@pytest.fixture
def start(farm: Farm) -> Iterator[Callable[..., Builder]]:
    """Run builders until the test ends."""
    running: list[tuple[Builder, threading.Thread, Farm]] = []

    def begin(command=BUILD_COMMAND, at_once: int = 1, **changes: object) -> Builder:
        own = Farm.open(dataclasses.replace(farm.settings, **changes))
        builder = Builder(own, at_once, command=command, name=f"builder-{len(running)}")
        thread = threading.Thread(target=builder.run)
        thread.start()
        running.append((builder, thread, own))
        wait_until(lambda: builder.name in farm.builds.builders())
        return builder

    yield begin
    for builder, thread, own in running:
        builder.drain()
        builder.drain()
        thread.join(20)
        assert not thread.is_alive()
        own.close()


@pytest.fixture
def served(farm: Farm, tmp_path: Path) -> Iterator[Served]:
    farm.client.command("FLUSHALL")
    served = Served(farm, tmp_path)
    yield served
    served.close()


@pytest.fixture
def builders(served: Served) -> RemoteBuilders:
    """As the process of a job has them."""
    return RemoteBuilders(served.line())


@pytest.fixture
def patient(monkeypatch) -> None:
    """Builds wait for a builder as long as it takes."""
    monkeypatch.setattr("farrier_farm.jobs.builds._CALLED_BACK_S", 60.0)


def test_a_builder_compiles_what_the_job_would(
    build_inputs,  # noqa: F811
    target,  # noqa: F811
    builders: RemoteBuilders,
    start,
    monkeypatch,
    patient,
) -> None:
    with CompilePool(0, target, THREADS) as nobody:
        alone = nobody.compile(build_inputs)
    start(at_once=2)
    assert builders.count() == 2
    built = threading.Event()
    original, compiled = helpers_module._compiled, []

    def after_a_builder(module, of):
        assert built.wait(60)
        compiled.append(module)
        return original(module, of)

    class Watched(RemoteBuilders):
        def build(self, message: str) -> Built:
            try:
                return super().build(message)
            finally:
                built.set()

    monkeypatch.setattr(helpers_module, "_compiled", after_a_builder)
    with CompilePool(0, target, THREADS, Watched(builders._line)) as helpers:
        assert helpers.compile(build_inputs) == alone
    assert len(compiled) < len(build_inputs) // 2


def test_a_message_that_is_none_costs_nothing_but_its_answer(builders, start, patient) -> None:
    start()
    for message in ("{}", "[]", "no JSON", "\ud83d\ude00"):
        built = builders.build(message)
        assert "failed" in built.answer or built.crashed, message
    assert json.loads(builders.build('{"kernels": [], "target": {}}').answer)["failed"]


@pytest.mark.parametrize(
    ("act", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os._exit(3)", "exited with 3"),
        ("time.sleep(60)", "took longer than 1 s"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "took longer than 1 s"),
        ("kept = bytearray(os.urandom(1 << 20)) * 420; time.sleep(60)", "bytes of memory"),
        ("os.write(int(sys.argv[1]), b'x' * 100); time.sleep(60)", "frame of"),
        ("return '\\ud800' * (1 << 24)", "frame of"),
    ],
    ids=["crash", "exit", "hang", "stopped", "memory", "no frame", "too long"],
)
def test_a_process_that_is_lost_costs_its_build_alone(
    builders: RemoteBuilders, start, acting, patient, act: str, how: str
) -> None:
    command = acting(f"if message['lost']:\n    {act}\nreturn {{'failed': 'as told'}}")
    timeout_s = 1.0 if "1 s" in how else 30.0
    start(command, build_timeout_s=timeout_s, job_memory_bytes=400 << 20)
    assert how in builders.build('{"lost": true}').crashed
    assert json.loads(builders.build('{"lost": false}').answer) == {"failed": "as told"}


def test_a_process_that_something_outside_kills_costs_time_alone(
    builders: RemoteBuilders, start, acting, patient
) -> None:
    """More often than a build may crash."""
    builder = start(acting("time.sleep(0.5)\nreturn {'failed': 'as told'}"), job_crashes=2)
    answers: list[Built] = []
    asking = threading.Thread(target=lambda: answers.append(builders.build("{}")))
    asking.start()
    killed: set[int] = set()
    while len(killed) < 4 and asking.is_alive():
        for process in [*builder._busy.values()]:
            if process is not None and process.pid not in killed:
                os.kill(process.pid, signal.SIGKILL)
                killed.add(process.pid)
        time.sleep(0.01)
    asking.join(60)
    assert len(killed) == 4
    assert [json.loads(built.answer) for built in answers] == [{"failed": "as told"}]


@pytest.mark.parametrize(
    ("act", "is_to_blame"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", False),
        ("os.kill(os.getpid(), signal.SIGSEGV)", True),
        ("os.close(int(sys.argv[1])); time.sleep(60)", True),
    ],
    ids=["killed", "crashed", "hung up and stayed"],
)
def test_a_process_is_not_to_blame_for_what_was_done_to_it(
    farm: Farm, acting, act: str, is_to_blame: bool
) -> None:
    with (
        BuildProcess("job", farm.settings, acting(act)) as process,
        pytest.raises(ProcessEndedError) as ended,
    ):
        process.build("{}")
    assert ended.value.is_to_blame is is_to_blame


def test_a_process_that_is_killed_each_time_is_given_up(
    builders: RemoteBuilders, start, acting, patient
) -> None:
    start(acting("os.kill(os.getpid(), signal.SIGKILL)"))
    assert builders.build("{}").crashed == "killed by SIGKILL"


def test_a_process_serves_one_job_alone(farm: Farm, start, acting, patient) -> None:
    """A stranger's kernel must not get into another job's code."""
    farm.client.command("FLUSHALL")
    start(acting("return {'pid': os.getpid()}"))
    model = farm.blobs.put(b"a model")
    jobs = []
    for seed in range(2):
        farm.jobs.submit(model, CompileOptions(target=TARGET, seed=seed))
        jobs.append(farm.jobs.lease(f"w{seed}", 5.0))
    pids = []
    for job in jobs * 2:
        build_id = farm.builds.submit("{}", job)
        pids.append(json.loads(farm.builds.wait(build_id, lambda: False).answer)["pid"])
    assert pids[:2] == pids[2:]
    assert pids[0] != pids[1]


def test_a_process_that_died_while_it_was_free_is_no_crash(builders, start, acting, patient):
    start(acting("return {'pid': os.getpid()}"))
    pid = json.loads(builders.build("{}").answer)["pid"]
    os.kill(pid, 9)
    time.sleep(0.2)
    again = json.loads(builders.build("{}").answer)["pid"]
    assert again != pid


def test_a_process_reaches_nothing_of_the_farm(farm: Farm, builders, start, acting, patient):
    load_token(farm.settings, TokenRole.DEVICE, create=True)
    home = str(farm.settings.home)
    start(
        acting(
            f"""
            tries = {{}}
            def attempt_at(name, act):
                try:
                    tries[name] = repr(act() or "done")
                except BaseException as error:
                    tries[name] = type(error).__name__
            attempt_at("token", lambda: open({home!r} + "/device.token").read())
            attempt_at("home", lambda: os.listdir({home!r}) and "listed")
            attempt_at("network", lambda: socket.socket(socket.AF_INET))
            attempt_at("redis", lambda: socket.socket(socket.AF_UNIX))
            attempt_at("parent", lambda: open(f"/proc/{{os.getppid()}}/environ").read())
            attempt_at("scratch", lambda: open("mine", "w").write("x"))
            return {{**tries, "environment": list(os.environ)}}
            """
        )
    )
    reached = json.loads(builders.build("{}").answer)
    assert not {name for name in reached["environment"] if name.startswith("REDIS")}
    assert "FARRIER_HOME" not in reached["environment"]
    assert reached["scratch"] == "1"
    if "landlock" in _offered():
        denied = "PermissionError"
        assert [reached[name] for name in ("token", "home", "parent")] == [denied] * 3
    if "seccomp" in _offered():
        assert [reached[name] for name in ("network", "redis")] == ["PermissionError"] * 2


def test_a_builder_that_drains_hands_back(farm: Farm, builders, start, acting, patient) -> None:
    builder = start(acting("time.sleep(60)"), drain_s=0.2)
    asking = threading.Thread(target=builders.build, args=("{}",))
    asking.start()
    wait_until(lambda: builder._busy and None not in builder._busy.values())
    [build] = builder._busy
    builder.drain()
    wait_until(lambda: farm.builds.leases.fields(build.lease.item)["state"] == "queued")
    assert farm.builds.leases.fields(build.lease.item)["crashes"] == "0"
    wait_until(lambda: not farm.builds.builders())
    start(acting("return {'failed': 'as told'}"))
    asking.join(20)
    assert not asking.is_alive()


def test_a_build_that_is_dropped_is_stopped(farm: Farm, builders, served, start, acting, patient):
    builder = start(acting("time.sleep(60)"))
    asking = threading.Thread(target=_ignoring_errors, args=(builders.build, "{}"))
    asking.start()
    wait_until(lambda: builder._busy and None not in builder._busy.values())
    [process] = builder._busy.values()
    farm.cancel(served.job)
    asking.join(20)
    wait_until(lambda: process.has_ended)
    wait_until(lambda: not builder._busy)


def _ignoring_errors(act: Callable[[str], object], message: str) -> None:
    try:
        act(message)
    except Exception as error:
        print(error)


def test_without_builders_a_build_comes_back(builders: RemoteBuilders) -> None:
    assert builders.count() == 0
    begin = time.monotonic()
    assert builders.build("{}") == Built()
    assert time.monotonic() - begin < 5.0


def test_a_process_that_cannot_start_hands_its_builds_back(
    farm: Farm, builders, start, monkeypatch
) -> None:
    monkeypatch.setattr("farrier_worker.builder._STARTED_AGAIN_S", 0.1)
    start(["/no/such/program"])
    assert builders.build("{}") == Built()


def test_more_builds_at_once_than_a_job_may_have_end_the_attempt(served: Served) -> None:
    wire.receive(served.sock)
    wire.send(served.sock, {"ready": ""})
    for number in range(260):
        wire.send(served.sock, {"ask": number, "build": "{}"})
    served.sock.settimeout(120)
    with contextlib.suppress(ConnectionResetError):
        while served.sock.recv(1 << 16):
            pass
    served.channel._thread.join(120)
    assert "more than 256 builds" in served.aborted[0][0]


def test_what_a_process_leaves_behind_goes_with_it(farm: Farm, acting) -> None:
    process = BuildProcess("a job", farm.settings, acting("return os.getcwd()"))
    folder = Path(json.loads(process.build("{}")))
    assert folder.is_dir()
    process.close()
    process.close()
    assert not folder.exists()
