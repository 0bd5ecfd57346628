"""A farm, and a supervisor in a thread whose jobs are small programs written by the test."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farrier_device.describe import describe
from farrier_device.runners.local import ChildRunner
from farrier_farm.farm import Farm
from farrier_worker.supervisor import Supervisor
from tests.device_side import BlockingDeviceSide

# What every program starts with: its line to the supervisor, and the walls of a job's process where
# the program asks for them.
PRELUDE = """
    import os, signal, socket, subprocess, sys, time
    from farrier import progress
    from farrier_worker.job import enclosed
    from farrier_worker.job_channel_client import JobChannelClient
    def opened():
        line = JobChannelClient(socket.socket(fileno=int(sys.argv[1])))
        line.ready("")
        return line
    line = {line}
    attempt = line.order["attempt"]
    def succeed(report):
        with open("artifact", "w+b") as file:
            file.write(b"an artifact")
            file.flush()
            line.finish(file.fileno(), report)
"""


@pytest.fixture
def worker_settings(farm_settings: Any) -> Any:
    return dataclasses.replace(farm_settings, lease_s=2.0, grace_s=0.5, drain_s=0.3)


@pytest.fixture
def farm(worker_settings: Any) -> Iterator[Farm]:
    farm = Farm.open(worker_settings)
    yield farm
    farm.close()


@pytest.fixture
def device_side(farm: Farm) -> Iterator[BlockingDeviceSide]:
    """The broker's side of the farm's devices."""
    with BlockingDeviceSide(farm) as side:
        yield side


@pytest.fixture
def device(farm: Farm, device_side) -> Iterator[Callable[[], int]]:
    """A device of this machine, as a function that returns the number of batches it measured."""
    session = device_side.connect("here", dataclasses.asdict(describe()))
    stop = threading.Event()
    batches: list[str] = []

    def work() -> None:
        runner = ChildRunner(device="here", pin=False)
        while not stop.is_set():
            batch = device_side.lease("here", session, 0.2)
            if batch is not None:
                result = runner.measure(batch.request, farm.blobs)
                lease = batch.lease
                device_side.report("here", session, lease.item, lease.fence, result)
                batches.append(lease.item)
        runner.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield lambda: len(batches)
    stop.set()
    thread.join()


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., list[str]]:
    """The command that runs `text` after the prelude, `enclosed` as a job's process is."""

    def write(text: str, *, is_enclosed: bool = False) -> list[str]:
        path = tmp_path / f"program-{len(list(tmp_path.iterdir()))}.py"
        line = "enclosed(sys.argv[1:])" if is_enclosed else "opened()"
        prelude = PRELUDE.replace("{line}", line)
        path.write_text(textwrap.dedent(prelude) + textwrap.dedent(text))
        return [sys.executable, str(path)]

    return write


@pytest.fixture
def supervise(farm: Farm) -> Iterator[Callable[..., Supervisor]]:
    """Run supervisors until the test ends."""
    running: list[tuple[Supervisor, threading.Thread, Farm]] = []

    def start(command: list[str], **changes: Any) -> Supervisor:
        own = Farm.open(dataclasses.replace(farm.settings, **changes))
        supervisor = Supervisor(own, command=command, name=f"worker-{len(running)}")
        thread = threading.Thread(target=supervisor.run, name=supervisor.name)
        thread.start()
        running.append((supervisor, thread, own))
        return supervisor

    yield start
    for supervisor, thread, own in running:
        supervisor.drain()
        supervisor.drain()
        thread.join(20)
        assert not thread.is_alive()
        own.close()


@pytest.fixture
def acting(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], list[str]]:
    """A function that returns the command of a process as the module's PROCESS writes it, with this
    body."""

    def write(act: str) -> list[str]:
        path = tmp_path / "process.py"
        body = textwrap.indent(textwrap.dedent(act).strip(), "    ").strip()
        path.write_text(textwrap.dedent(request.module.PROCESS).replace("{act}", body))
        return [sys.executable, str(path)]

    return write
