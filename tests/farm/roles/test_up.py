"""`farrier up`: its end, asked for at any moment, and a Valkey that does not come back at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farrier_farm.redis import embedded
from farrier_farm.roles import liveness, up
from farrier_farm.settings import Settings
from tests.waiting import wait_until

_WAIT_OFTEN = """
import signal
from farrier_farm.roles.up import _Stop

stop = _Stop()
signal.signal(signal.SIGTERM, lambda *arguments: stop.ask(*arguments))
print("ready", flush=True)
for _ in range(10_000):
    stop = _Stop()  # so that each signal is the first
    while not stop.wait(1e-5):
        pass
print("ended", flush=True)
"""


def test_a_signal_at_any_step_of_the_wait_ends_it():
    with subprocess.Popen(
        [sys.executable, "-c", _WAIT_OFTEN], stdout=subprocess.PIPE, text=True
    ) as waits:
        assert waits.stdout is not None
        assert waits.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 30
        while waits.poll() is None and time.monotonic() < deadline:
            waits.send_signal(signal.SIGTERM)
            time.sleep(3e-5)  # for the handler
        waits.kill()
        assert waits.stdout.read() == "ended\n"


def test_a_valkey_that_does_not_come_up_is_tried_again(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "_VALKEY_PAUSE_S", 0.0)
    home = tmp_path_factory.mktemp("h")
    valkey = embedded.start(Settings(home=home))
    try:
        [manifest] = Path(home, "valkey").glob("*/*.manifest")
        os.kill(valkey.pid, signal.SIGKILL)
        right = manifest.read_bytes()
        manifest.write_bytes(b"nonsense\n")
        said: list[str] = []
        with up._Store(valkey, said.append):
            wait_until(lambda: said)
            assert len(said) == 1
            assert "the next attempt follows: the embedded Redis does not start" in said[0]
            manifest.write_bytes(right)
            wait_until(lambda: len(said) == 2)
            assert "is running again" in said[1]
    finally:
        valkey.stop()


@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_valkey_that_is_stopped_is_let_go_on(
    installation, monkeypatch: pytest.MonkeyPatch, is_adopted: bool
) -> None:
    monkeypatch.setattr(up, "STOPPED_S", 0.2)
    said: list[str] = []
    valkey = launched = installation._valkey
    if is_adopted:
        launched._lock.close()
        valkey = embedded.start(installation.settings)
    pid = valkey.pid
    with up._Store(valkey, said.append):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: said)
        assert f"Valkey (process {pid}) was stopped by a signal" in said[0]
        wait_until(lambda: liveness.answers(valkey.url))
    assert (valkey.pid, len(said)) == (pid, 1)
    valkey.stop()
    launched._process.wait()
