"""A role's side of its sandboxed process: start the process, send it requests, watch it and end
it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from farrier_device import wire
from farrier_device.child_process import describe_exit, is_from_outside
from farrier_device.closing import Closing
from farrier_farm.settings import Settings
from farrier_worker import scratch_process
from farrier_worker.confinement import log_level
from farrier_worker.memory import held_bytes

_START_S = 30.0  # It imports the compiler, perhaps on a busy machine.
# The time that a hanging-up process gets to end by itself, so that its exit code is known.
_END_S = 1.0

_log = logging.getLogger(__name__)


class ProcessEndedError(Exception):
    """A process ended before it had answered; the message states the cause. `is_to_blame` is true
    if the process ended by itself or exceeded a limit, and false after a signal from outside."""

    def __init__(self, how: str, *, is_to_blame: bool) -> None:
        super().__init__(how)
        self.is_to_blame = is_to_blame


class SandboxedProcess(Closing):
    """A process that reads data written by untrusted processes, and starts as described in
    `sandboxed_entry.py`. The process has the limits of a job's process, and its temporary files are
    removed when it ends."""

    def __init__(
        self,
        what: str,
        settings: Settings,
        command: Sequence[str],
        *,
        reads: Sequence[Path] = (),
        nice: int = 0,
    ) -> None:
        """Start the process. `what` is its name in the log and in file names, the descriptor of its
        socket is appended to `command`, and `reads` are the files that it may read. Raises OSError
        if the process cannot start."""
        self.level = ""  # The sandbox level.
        self._what = what
        self._settings = settings
        self._reads = reads
        # The time at which it is ended, and the seconds that it was allowed.
        self._deadline: tuple[float, float] | None = None
        self._stopping = ""
        self._is_to_blame = False
        self._aborting = threading.Lock()
        self._process, self._scratch = scratch_process.start(
            what, lambda line: [*command, str(line)]
        )
        self._sock = self._process.sock
        try:
            if nice:
                os.setpriority(os.PRIO_PROCESS, self._process.pid, nice)
            self._begin(Path(self._scratch.name))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended. The process is not reaped, so that its process id
        is not reused."""
        return self._process.wait(0) is not None

    def log_level(self) -> None:
        """Log the sandbox level of the process."""
        log_level(f"a {self._what} process", self.level)

    def ask(
        self,
        message: dict[str, Any],
        within_s: float,
        most_bytes: int,
        since: float | None = None,
    ) -> dict[str, Any]:
        """Return the answer to a message. The process is killed if its answer takes longer than
        `within_s` seconds, counted from now or from `since` on the monotonic clock, or is longer
        than `most_bytes`. Raises ProcessEndedError, after which this object must not be used
        again."""
        self._deadline = (time.monotonic() if since is None else since) + within_s, within_s
        try:
            wire.send(self._sock, message)
            return wire.receive(self._sock, most_bytes)
        except wire.WireError as error:
            raise ProcessEndedError(f"sent {error}", is_to_blame=True) from None
        except wire.ClosedError:
            raise self._ended() from None
        finally:
            self._deadline = None

    def check(self) -> None:
        """Kill the process if it exceeds its time or memory limit. This method may run in another
        thread than the other methods."""
        deadline, most = self._deadline, self._settings.job_memory_bytes
        if deadline is not None and time.monotonic() > deadline[0]:
            self.abort(f"took longer than {deadline[1]:g} s", is_to_blame=True)
        elif most and self._holds_more_than(most):
            self.abort(f"held more than {most} bytes of memory", is_to_blame=True)

    def abort(self, how: str, *, is_to_blame: bool) -> None:
        """Kill the process at once, even if a stop was requested before. The first reason is kept.
        Safe to call from any thread."""
        with self._aborting:
            if not (self._stopping or self._process.is_reaped):
                self._stopping, self._is_to_blame = how, is_to_blame
        self._process.send(signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, and the rest of its process group."""
        self._process.close()
        self._scratch.cleanup()

    def _begin(self, scratch: Path) -> None:
        """Send the process its limits, and wait until it is ready. Raises OSError if the process
        does not start."""
        settings = self._settings
        secrets = (settings.home, settings.token_file, settings.device_token_file, settings.tls_key)
        order = {
            "scratch": str(scratch),
            "secrets": [str(path) for path in secrets if path is not None],
            "reads": [str(path) for path in self._reads],
            "memory_bytes": settings.job_memory_bytes,
        }
        self._sock.settimeout(_START_S)
        try:
            wire.send(self._sock, order)
            self.level = str(wire.receive(self._sock).get("ready", ""))
        except (wire.ClosedError, wire.WireError) as error:
            raise OSError(f"a sandboxed process ended during its start {error}") from error
        self._sock.settimeout(None)

    def _holds_more_than(self, most: int) -> bool:
        if self._process.is_reaped:
            return False
        try:
            return held_bytes(self.pid, enough=most) > most
        # This may pass, for instance when file descriptors are free again.
        except OSError as error:
            _log.warning("the memory of process %d cannot be read: %s", self.pid, error)
            return False

    def _ended(self) -> ProcessEndedError:
        """Return the error for a process that ended: with its exit code if it ended by itself,
        otherwise with the reason for which it was killed."""
        until = time.monotonic() + _END_S
        while not self._stopping and not self.has_ended and time.monotonic() < until:
            time.sleep(0.01)
        # Otherwise it has closed the channel but lives, and is killed here.
        has_ended = self.has_ended
        self.close()
        if self._stopping:
            return ProcessEndedError(self._stopping, is_to_blame=self._is_to_blame)
        code = self._process.end()
        is_to_blame = not (has_ended and is_from_outside(code))
        return ProcessEndedError(describe_exit(code), is_to_blame=is_to_blame)
