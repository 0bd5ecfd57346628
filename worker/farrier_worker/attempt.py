"""One attempt at a job: a process in a group of its own, watched from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence

from farrier.errors import FarrierError
from farrier_farm.children import bound_to_this_process
from farrier_farm.leases import Lease
from farrier_farm.settings import Settings
from farrier_worker.memory import held_bytes, out_of_memory

RETRY_LATER = 75  # the job's exit code where the farm, not the job, was the trouble (EX_TEMPFAIL)
_TAIL_BYTES = 2000  # of standard error, kept for the reason of a crash


class Attempt:
    """Starts the process at once. Its standard error goes on to ours, its end is remembered, and
    its temporary files go with it, however it ends. Raises OSError where it cannot start."""

    def __init__(
        self, lease: Lease, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.lease = lease
        self.crashed = False  # valid once `ended`
        self.reason = ""
        self.failure: FarrierError | None = None  # why no attempt would do better
        self._stopping = ""
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._tail = b""
        self._ending = threading.Lock()  # the group's number is ours while its leader is not reaped
        self._scratch = tempfile.TemporaryDirectory(
            prefix="farrier-job-", ignore_cleanup_errors=True
        )
        try:
            self._process = subprocess.Popen(
                [*command, lease.item, str(lease.fence), str(lease.attempt), lease.owner],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**environment, "TMPDIR": self._scratch.name},
                start_new_session=True,  # a group of its own: no Ctrl-C in our terminal reaches it
                # Nor does it go on, its supervisor killed, beside the attempt that replaces it.
                preexec_fn=bound_to_this_process(),
            )
        except OSError:
            self._scratch.cleanup()
            raise
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, reason: str, *, after_s: float = 0.0) -> None:
        """Asks the process to end, in `after_s` seconds; `press` does it. The first reason stays,
        the earliest time counts."""
        at = time.monotonic() + after_s
        self._stopping = self._stopping or reason
        self._term_at = at if self._term_at is None else min(at, self._term_at)

    def press(self, grace_s: float) -> None:
        """SIGTERM to the group when its time has come, SIGKILL after the grace."""
        now = time.monotonic()
        if self._process.returncode is not None or self._term_at is None or now < self._term_at:
            return
        if self._kill_at is None:
            self._kill_at = now + grace_s
            os.killpg(self._process.pid, signal.SIGTERM)
        elif now >= self._kill_at:
            os.killpg(self._process.pid, signal.SIGKILL)

    def check_memory(self, settings: Settings) -> None:
        """Ends the whole group where it holds more than it may. Safe to call from another thread
        than the one that all else is called from."""
        with self._ending:
            if self._process.returncode is None and self.failure is None:
                held = held_bytes(self._process.pid, enough=settings.job_memory_bytes)
                if held > settings.job_memory_bytes:
                    self.failure = out_of_memory(settings)
                    self._stopping = self._stopping or f"{self.failure.message}: it held {held}"
                    os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self) -> bool:
        """Whether the process is gone; then what it left behind in its group is gone too."""
        if self._process.returncode is not None:
            return True
        self._read()
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, self._process.pid, options) is None:
            return False
        self.kill()
        code = self._process.wait()
        self.crashed = not self._stopping and code != RETRY_LATER
        self.reason = self._stopping or _describe(code, self._tail)
        return True

    def kill(self) -> None:
        """Ends the whole group now. The zombie of its leader keeps the number from being reused."""
        if self._process.returncode is None:
            with self._ending:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._read()
            self._stderr.close()
            self._scratch.cleanup()

    def _read(self) -> None:
        while data := self._stderr.read(65536):
            sys.stderr.write(data.decode(errors="replace"))
            self._tail = (self._tail + data)[-_TAIL_BYTES:]


def _describe(code: int, tail: bytes) -> str:
    """How a process ended, with the end of what it said."""
    if code < 0:
        end = f"killed by {signal.Signals(-code).name}"
    elif code == RETRY_LATER:
        end = "the farm did not answer it"
    else:
        end = f"ended with code {code}" + ("" if code else " and no result")
    said = tail.decode(errors="replace").strip()
    return f"{end}\n{said}" if said else end
