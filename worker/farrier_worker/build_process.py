"""The builder's end of its compiling processes: started, asked, kept for the job that they have
seen."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence

from farrier_device.closing import Closing
from farrier_farm.settings import Settings
from farrier_worker.sandboxed_process import ProcessEndedError, SandboxedProcess

BUILD_COMMAND = (sys.executable, "-P", "-m", "farrier_worker.build")

_MOST_BYTES = 16 << 20  # of an answer: a usual one has a thousandth
_IDLE_S = 60.0  # a process that has had nothing to do for so long is ended


class BuildProcess(SandboxedProcess):
    """A process that compiles modules of one job: what a stranger's IR may have made of it is kept
    from the kernels of others."""

    def __init__(self, job: str, settings: Settings, command: Sequence[str]) -> None:
        """As `SandboxedProcess`."""
        self.job = job
        self.used = time.monotonic()  # when it was last asked
        super().__init__("build", settings, command)

    def build(self, message: str) -> str:
        """The answer to a message. Raises ProcessEndedError; the process is of no use then."""
        self.used = time.monotonic()
        try:
            within_s = self._settings.build_timeout_s
            match self.ask({"build": message}, within_s, _MOST_BYTES):
                case {"built": str(answer)} if answer.isascii():
                    return answer
                case _:
                    raise ProcessEndedError("said something malformed", is_to_blame=True)
        finally:
            self.used = time.monotonic()


class ProcessPool(Closing):
    """The compiling processes of a builder that are free, each for the job that it has seen. Safe
    to share between threads."""

    def __init__(self, most: int, start: Callable[[str], BuildProcess]) -> None:
        """Keep up to `most` that are free; `start` makes one for a job."""
        self._most = most
        self._start = start
        self._free: list[BuildProcess] = []  # the one used last at the end
        self._lock = threading.Lock()

    def take(self, job: str) -> BuildProcess:
        """A process for a module of a job: one that has compiled for it, or a new one. Raises
        OSError where none can be started."""
        with self._lock:
            found = next((one for one in reversed(self._free) if one.job == job), None)
            if found is not None:
                self._free.remove(found)
        if found is not None and not found.has_ended:
            return found
        if found is not None:
            found.close()
        return self._start(job)

    def put(self, process: BuildProcess) -> None:
        """Keep a process that has answered."""
        with self._lock:
            self._free.append(process)
            surplus = [] if len(self._free) <= self._most else [self._free.pop(0)]
        for one in surplus:
            one.close()

    def end_idle(self) -> None:
        """Ends those that nobody has used for a while."""
        with self._lock:
            old = [one for one in self._free if time.monotonic() - one.used > _IDLE_S]
            self._free = [one for one in self._free if one not in old]
        for one in old:
            one.close()

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for one in free:
            one.close()
