"""`farrier up`: its end, asked for at any moment, and a Valkey that does not come back at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from farrier_farm import embedded, up
from farrier_farm.settings import Settings

_WAIT_OFTEN = """
import signal
from farrier_farm.up import _Stop

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
        store = up._Store(valkey)
        deadline = time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            store.look_after(said.append)
        store.look_after(said.append)
        assert len(said) == 1
        assert "is tried again: the embedded Redis does not start" in said[0]
        manifest.write_bytes(right)
        while len(said) < 2 and time.monotonic() < deadline:
            store.look_after(said.append)
        assert "runs again" in said[1]
    finally:
        valkey.stop()
