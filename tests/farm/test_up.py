"""The end of `farrier up`, asked for at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

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
