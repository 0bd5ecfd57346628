"""Agents that join a running service under a name, with options of their own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.up import HANGS_S


@contextlib.contextmanager
def joined(up, name: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent that is enrolled under a name. Its log is the file `log` in the folder."""
    added = up.command("devices", "add", name)
    assert added.returncode == 0, added.stderr
    local, *_ = up.pids("farrier_device --broker")  # All agents have the same broker.
    words = Path(f"/proc/{local}/cmdline").read_text().split("\0")
    broker = words[words.index("--broker") + 1]
    command = [sys.executable, "-m", "farrier_device", "--broker", broker]
    command += ["--enrol", added.stdout.strip(), "--state", str(folder / "state"), *options]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=up.environment, stderr=log)
        yield process
        process.terminate()
        process.wait()


def registered(client, agent, name: str):
    """Return the device of a name, when it has come."""
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline and agent.poll() is None:
        for device in client.devices():
            if device.id == name:
                return device
        time.sleep(0.2)
    raise AssertionError(f"no device came; its agent: {agent.poll()}")
