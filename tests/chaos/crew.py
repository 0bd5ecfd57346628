"""Processes of a role to be killed and stopped, and those who look after them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from farrier_farm.settings import Settings


class Crew:
    """Processes of a role that are started again where they end, until the crew is closed."""

    def __init__(self, settings: Settings, words: Sequence[str], count: int) -> None:
        """Run `farrier WORDS`."""
        self._environment = {**os.environ, **settings.to_environment()}
        self._words = words
        self._members: list[subprocess.Popen[bytes]] = [self._start() for _ in range(count)]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_after)
        self._thread.start()

    def injure(self, generator: random.Random) -> None:
        """Kill one of these processes, or stop it for a while."""
        members = [member.pid for member in self._members]
        pid = generator.choice([*members, *children(members)])
        with contextlib.suppress(ProcessLookupError):
            if generator.random() < 0.6:
                os.kill(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(generator.uniform(0.2, 5.0))
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for member in self._members:
            member.send_signal(signal.SIGCONT)
            member.terminate()
        for member in self._members:
            member.wait(30)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "farrier.cli", *self._words]
        return subprocess.Popen(command, env=self._environment)

    def _look_after(self) -> None:
        while not self._over.wait(0.1):
            for number, member in enumerate(self._members):
                if member.poll() is not None:
                    self._members[number] = self._start()


def children(parents: Collection[int]) -> list[int]:
    """The processes that these have started."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(words[1]) in parents:
                pids.append(int(entry.name))
    return pids
