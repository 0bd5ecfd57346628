"""The roles of one machine as child processes: started, watched, started again, stopped."""

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

# Before a role is started again: the last one for ever, until it has been up for STEADY_S. One that
# had come up, and given a sign of life, waits for UP_PAUSE_S at most: its users wait for it, and
# its start is no reason for it to end.
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
UP_PAUSE_S = 2.0
STEADY_S = 30.0
START_S = 60.0  # until the first sign of life, on a busy machine
LOG_BYTES = 16 << 20  # a longer log is set aside at the role's next start
STOP_S = 20.0  # for the roles that stop together, before they are killed


class Role:
    """One process, whose output goes to `<logs>/<name>.log`, and which gives signs of life in the
    directory `signs`. It waits for the server `needs`, where that is one."""

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
        """`sign` is what its signs of life are called, where that is not its name."""
        self.name = name
        self.needs = needs
        self.log = logs / f"{name}.log"
        self._signs = signs
        self._sign = sign or name
        self._deaths = 0  # in a row
        self._again_at: float | None = None  # while it is down
        self._command = command
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._came_up = False  # in this life
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
        self._came_up = False
        self._again_at = None

    def look_after(self, may_start: Callable[[], bool] = lambda: True) -> str:
        """Start it again where it has ended, after pauses that grow while it ends again and again,
        and not before it `may_start`: what it needs is away, so that it could only end again.
        Returns what there is to tell: that it ended, that it keeps ending, that it is well again;
        each once."""
        now = time.monotonic()
        told = ""
        if not self.ended:
            self._came_up = self._came_up or self._last_sign() is not None
            if self._deaths and now - self._started > STEADY_S:
                told = f"{self.name} is up again" if self._deaths > 1 else ""
                self._deaths = 0
        elif self._again_at is None:
            self._came_up = self._came_up or self._last_sign() is not None
            told = self._died(f"ended with code {self.code}: {self.last_words()}", now)
        if self._again_at is not None and now >= self._again_at:
            if not may_start():
                self._deaths = min(self._deaths, 1)  # no fault of its own
                return told
            try:
                self.start()
            except OSError as error:  # no more processes, a full disk
                told = self._died(f"cannot be started: {error}", now) or told
        return told

    def _died(self, how: str, now: float) -> str:
        self._deaths = 1 if now - self._started > STEADY_S else self._deaths + 1
        pause_s = PAUSES_S[min(self._deaths, len(PAUSES_S)) - 1]
        self._again_at = now + (min(pause_s, UP_PAUSE_S) if self._came_up else pause_s)
        if self._deaths == 1:
            return f"{self.name} {how}"
        if self._deaths == 2:
            longest_s = UP_PAUSE_S if self._came_up else PAUSES_S[-1]
            rest = f"it is started again after {longest_s:.0f} s at most; its log is {self.log}"
            return f"{self.name} {how}; again, so {rest}"
        return ""

    def silent_s(self, since: float) -> float:
        """For how many seconds it has given no sign of life, counted from `since` at the earliest.
        One that has given none yet is starting."""
        if self.pid is None or self.ended:
            return 0.0
        sign = self._last_sign()
        if sign is None:
            sign = self._started + START_S
        return time.monotonic() - max(sign, since)

    def _last_sign(self) -> float | None:
        return last_sign(self._signs, self._sign, self.pid or 0)

    def replace(self) -> None:
        """Kill it, for it hangs; `look_after` starts it anew at once."""
        self.signal(signal.SIGKILL)
        self.wait(STOP_S)
        self._again_at = time.monotonic()

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
    """Ask the roles to end, and a second time, which is an order, once `hurry()`; kill what is
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
