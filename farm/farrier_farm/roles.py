"""The roles of one machine as child processes: started, watched, started again, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from farrier.errors import ServiceError
from farrier_farm.children import bound_to_this_process

RESTARTS = 5
STEADY_S = 30.0  # a role that lived this long starts counting its restarts anew
LOG_BYTES = 16 << 20  # a longer log is set aside at the role's next start
STOP_S = 20.0  # for the roles that stop together, before they are killed


class Role:
    """One process, whose output goes to `<logs>/<name>.log`."""

    def __init__(
        self, name: str, command: Sequence[str | Path], logs: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.restarts = 0  # in a row
        self._command = command
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._said_before = 0  # bytes of the log, at the start

    @property
    def ended(self) -> bool:
        """Whether it was started and is gone."""
        return self._process is not None and self._process.poll() is not None

    @property
    def code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stopped_by(self) -> signal.Signals | None:
        """The signal (SIGSTOP, for one) that has stopped it since the last call; None where none
        has. A process that is stopped lives and does nothing."""
        if self._process is None or self._process.poll() is not None:
            return None
        with contextlib.suppress(ChildProcessError):  # it ended meanwhile
            found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)
            return None if found is None else signal.Signals(found.si_status)
        return None

    def start(self) -> None:
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            self._said_before = log.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # Of its own: Ctrl-C reaches the starter alone, which stops the roles in order.
                start_new_session=True,
                # One whose starter was killed would hold its port against the next one.
                preexec_fn=bound_to_this_process(),
            )
        self._started = time.monotonic()

    def start_again(self) -> None:
        """Raises ServiceError for a role that ends again and again."""
        lived = time.monotonic() - self._started
        self.restarts = 0 if lived > STEADY_S else self.restarts + 1
        if self.restarts > RESTARTS:
            raise ServiceError(
                f"{self.name} ended {self.restarts} times in a row: {self.last_words()}",
                hint=f"its log is {self.log}",
            )
        self.start()

    def last_words(self) -> str:
        """The error that it ended with, or what else it said last since its start."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            lines = log.read().decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if line.startswith(("error: ", "farrier-device: "))]
        return (errors or lines or ["it said nothing"])[-1].removeprefix("error: ")

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it is gone after so long."""
        try:
            if self._process is not None:
                self._process.wait(timeout_s)
            return True
        except subprocess.TimeoutExpired:
            return False


def stop_together(roles: Sequence[Role], hurry: Callable[[], bool]) -> None:
    """Asks the roles to end, and a second time, which is an order, once `hurry()`; kills what is
    left after STOP_S."""
    hurried = False
    for role in roles:
        role.signal(signal.SIGTERM)
        role.signal(signal.SIGCONT)  # one that is stopped would not hear of it
    deadline = time.monotonic() + STOP_S
    while not all(role.wait(0.05) for role in roles):
        if time.monotonic() > deadline:
            for role in roles:
                role.signal(signal.SIGKILL)
        elif hurry() and not hurried:
            hurried = True
            for role in roles:
                role.signal(signal.SIGTERM)
