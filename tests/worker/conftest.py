"""A farm, and a supervisor in a thread whose jobs are small programs written by the test."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from farrier_farm.farm import Farm
from farrier_worker.supervisor import Supervisor

# What every program starts with: the attempt's lease, and the farm.
PRELUDE = """
    import os, signal, subprocess, sys, time
    from farrier import progress
    from farrier_farm.farm import Farm
    from farrier_farm.leases import Lease
    from farrier_farm.settings import Settings
    lease = Lease(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    farm = Farm.open(Settings.from_environment())
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
def program(tmp_path: Path) -> Callable[[str], list[str]]:
    """The command that runs `text` after the prelude."""

    def write(text: str) -> list[str]:
        path = tmp_path / f"program-{len(list(tmp_path.iterdir()))}.py"
        path.write_text(textwrap.dedent(PRELUDE) + textwrap.dedent(text))
        return [sys.executable, str(path)]

    return write


@pytest.fixture
def supervise(farm: Farm) -> Iterator[Callable[..., Supervisor]]:
    """Runs supervisors until the test ends."""
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
def eventually() -> Callable[..., Any]:
    """Waits for a value that is true, and returns it."""

    def wait(look: Callable[[], Any], seconds: float = 15.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := look()):
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.02)
        return value

    return wait
