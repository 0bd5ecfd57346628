"""The builder's side of its compiling processes: start them, send them modules, and keep them for
further modules of the same job."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence

from farrier_device.closing import Closing
from farrier_farm.settings import Settings
from farrier_worker.sandboxed_process import ProcessEndedError, SandboxedProcess

BUILD_COMMAND = (sys.executable, "-P", "-m", "farrier_worker.build")

_MOST_BYTES = 16 << 20  # The most bytes of an answer; a usual answer has a thousandth of that.
_IDLE_S = 60.0  # A process that has been unused for this time is ended.


class BuildProcess(SandboxedProcess):
    """A process that compiles modules of one job only, so that a malicious module cannot tamper
    with the kernels of other jobs."""

    def __init__(self, job: str, settings: Settings, command: Sequence[str]) -> None:
        """Start a process for one job. Raises the OSError of `SandboxedProcess` if it cannot
        start."""
        self.job = job
        self.used = time.monotonic()  # The time of its last use.
        super().__init__("build", settings, command)

    def build(self, message: str) -> str:
        """Compile the module in `message` and return the answer. Raises ProcessEndedError, after
        which this object must not be used again."""
        self.used = time.monotonic()
        try:
            within_s = self._settings.build_timeout_s
            match self.ask({"build": message}, within_s, _MOST_BYTES):
                case {"built": str(answer)} if answer.isascii():
                    return answer
                case _:
                    raise ProcessEndedError("sent a malformed message", is_to_blame=True)
        finally:
            self.used = time.monotonic()


class ProcessPool(Closing):
    """The idle compiling processes of a builder, each kept for the job whose modules it compiles.
    Safe to share between threads."""

    def __init__(self, most: int, start: Callable[[str], BuildProcess]) -> None:
        """Create a pool of up to `most` idle processes; `start` starts a process for a job."""
        self._most = most
        self._start = start
        self._free: list[BuildProcess] = []  # Ordered by last use, the latest at the end.
        self._lock = threading.Lock()

    def take(self, job: str) -> BuildProcess:
        """Return a process for a module of a job: an idle process of this job, or a new process.
        Raises OSError if no process can be started."""
        with self._lock:
            process = next((free for free in reversed(self._free) if free.job == job), None)
            if process is not None:
                self._free.remove(process)
        if process is not None and not process.has_ended:
            return process
        if process is not None:
            process.close()
        return self._start(job)

    def put(self, process: BuildProcess) -> None:
        """Return an idle process to the pool, and close the least recently used processes beyond
        `most`."""
        with self._lock:
            self._free.append(process)
            surplus = [] if len(self._free) <= self._most else [self._free.pop(0)]
        for old in surplus:
            old.close()

    def end_idle(self) -> None:
        """Close the processes that have been unused for `_IDLE_S` seconds."""
        with self._lock:
            old = [process for process in self._free if time.monotonic() - process.used > _IDLE_S]
            self._free = [process for process in self._free if process not in old]
        for process in old:
            process.close()

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for process in free:
            process.close()
