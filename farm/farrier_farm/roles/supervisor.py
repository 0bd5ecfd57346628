"""The start, monitoring, restart and stop of the roles of a machine, each of which is a child
process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from farrier_device.alive import last_sign
from farrier_farm.roles.children import bound_to_this_process

# The pauses in seconds before a role is started again. The last pause applies until the role has
# run for STEADY_S. A role that gave a sign of life before it exited waits for at most UP_PAUSE_S:
# its users wait for it, and its start was not the cause of the exit.
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
UP_PAUSE_S = 2.0
STEADY_S = 30.0
START_S = 60.0  # The time to the first sign of life, on a busy machine.
LOG_BYTES = 16 << 20  # A longer log is renamed at the role's next start.
STOP_S = 20.0  # The time that roles get to stop together, before they are killed.


class Role:
    """A role (such as the broker or a worker) as a child process. Its output goes to
    `<logs>/<name>.log`, and it renews its sign of life in the directory `signs`. `needs` is the
    name of the server on which the role depends, or ""."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        logs: Path,
        environment: Mapping[str, str],
        *,
        signs: Path,
        sign: str = "",
        needs: str = "",
    ) -> None:
        """Create a role without starting its process. `sign` is the name of its sign of life, if it
        differs from the name of the role."""
        self.name = name
        self.needs = needs
        self.log = logs / f"{name}.log"
        self._signs = signs
        self._sign = sign or name
        self._deaths = 0  # The number of consecutive exits.
        self._again_at: float | None = None  # The time of the next start, while it is down.
        self._command = command
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._came_up = False  # It has given a sign of life since its last start.
        self._said_before = 0  # The bytes of the log at the start.

    @property
    def ended(self) -> bool:
        """Return whether the process was started and has exited."""
        return self._process is not None and self._process.poll() is not None

    @property
    def code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stopped_by(self) -> signal.Signals | None:
        """Return the signal, such as SIGSTOP, that has stopped the process since the last call, or
        None."""
        if self._process is None or self._process.poll() is not None:
            return None
        with contextlib.suppress(ChildProcessError):  # it ended meanwhile
            status = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)
            return None if status is None else signal.Signals(status.si_status)
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
                # In a process session of its own: Ctrl-C reaches only the parent, which stops the
                # roles in order.
                start_new_session=True,
                # Without this, a role would survive the death of its parent and block its port.
                preexec_fn=bound_to_this_process(),
            )
        self._started = time.monotonic()
        self._came_up = False
        self._again_at = None

    def look_after(self, may_start: Callable[[], bool] = lambda: True) -> str:
        """Start the process again if it has exited, after pauses that increase while it repeatedly
        exits. If `may_start` is false, because a server that the role needs is unavailable, the
        process is not started. Return news for the user, each once: that the process exited, that
        it repeatedly exits, or that it runs again."""
        now = time.monotonic()
        news = ""
        if not self.ended:
            self._came_up = self._came_up or self._last_sign() is not None
            if self._deaths and now - self._started > STEADY_S:
                news = f"{self.name} is running again" if self._deaths > 1 else ""
                self._deaths = 0
        elif self._again_at is None:
            self._came_up = self._came_up or self._last_sign() is not None
            news = self._died(f"ended with code {self.code}: {self.last_words()}", now)
        if self._again_at is not None and now >= self._again_at:
            if not may_start():
                self._deaths = min(self._deaths, 1)  # The role did not cause its exit.
                return news
            try:
                self.start()
            except OSError as error:  # The system has no more processes, or the disk is full.
                news = self._died(f"cannot be started: {error}", now) or news
        return news

    def _died(self, how: str, now: float) -> str:
        self._deaths = 1 if now - self._started > STEADY_S else self._deaths + 1
        pause_s = PAUSES_S[min(self._deaths, len(PAUSES_S)) - 1]
        self._again_at = now + (min(pause_s, UP_PAUSE_S) if self._came_up else pause_s)
        if self._deaths == 1:
            return f"{self.name} {how}"
        if self._deaths == 2:
            longest_s = UP_PAUSE_S if self._came_up else PAUSES_S[-1]
            rest = f"it is restarted after at most {longest_s:.0f} s; its log is {self.log}"
            return f"{self.name} {how} again; {rest}"
        return ""

    def silent_s(self, since: float) -> float:
        """Return the seconds since the last sign of life of the role, or since `since` if that is
        later. Before the first sign of life, the seconds count from START_S after the start of the
        process."""
        if self.pid is None or self.ended:
            return 0.0
        sign = self._last_sign()
        if sign is None:
            sign = self._started + START_S
        return time.monotonic() - max(sign, since)

    def _last_sign(self) -> float | None:
        return last_sign(self._signs, self._sign, self.pid or 0)

    def replace(self) -> None:
        """Kill the process because it hangs; `look_after` then starts a new process at once."""
        self.signal(signal.SIGKILL)
        self.wait(STOP_S)
        self._again_at = time.monotonic()

    def last_words(self) -> str:
        """Return the error message with which the process exited, or the last lines of its log
        since its start."""
        with self.log.open("rb") as log:
            log.seek(self._said_before)
            lines = log.read().decode(errors="replace").strip().splitlines()
        errors = [line for line in lines if line.startswith(("error: ", "farrier-device: "))]
        return (errors or lines or ["it wrote nothing to its log"])[-1].removeprefix("error: ")

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for at most `timeout_s` until the process exits, and return whether it has."""
        try:
            if self._process is not None:
                self._process.wait(timeout_s)
            return True
        except subprocess.TimeoutExpired:
            return False


def stop_together(roles: Sequence[Role], hurry: Callable[[], bool]) -> None:
    """Send SIGTERM to all roles, and once more when `hurry()` becomes true, which makes them exit
    at once; kill the processes that still run after STOP_S."""
    hurried = False
    for role in roles:
        role.signal(signal.SIGTERM)
        role.signal(signal.SIGCONT)  # A stopped process would not receive the signal.
    deadline = time.monotonic() + STOP_S
    while not all(role.wait(0.05) for role in roles):
        if time.monotonic() > deadline:
            for role in roles:
                role.signal(signal.SIGKILL)
        elif hurry() and not hurried:
            hurried = True
            for role in roles:
                role.signal(signal.SIGTERM)
