"""The builder's end of its compiling processes: started, asked, watched, kept for the job that they
have seen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from farrier_device import wire
from farrier_device.closing import Closing
from farrier_device.sandbox import describe_exit
from farrier_farm.children import bound_to_this_process
from farrier_farm.settings import Settings
from farrier_worker.confinement import environment
from farrier_worker.memory import held_bytes

BUILD_COMMAND = (sys.executable, "-P", "-m", "farrier_worker.build")

_START_S = 30.0  # it imports the compiler, on a busy machine
_MOST_BYTES = 16 << 20  # of an answer: a usual one has a thousandth
_END_S = 1.0  # for a process that hangs up to end by itself, so that it is known how
_IDLE_S = 60.0  # a process that has had nothing to do for so long is ended


class ProcessEndedError(Exception):
    """A compiling process ended before it had answered; the message says how. `is_to_blame`: by
    itself, or past a limit."""

    def __init__(self, how: str, *, is_to_blame: bool) -> None:
        super().__init__(how)
        self.is_to_blame = is_to_blame


class BuildProcess(Closing):
    """A process that compiles modules of one job: what a stranger's IR may have made of it is kept
    from the kernels of others."""

    def __init__(self, job: str, settings: Settings, command: Sequence[str]) -> None:
        """`command` gets the descriptor of its socket appended. Raises OSError where the process
        cannot start."""
        self.job = job
        self.level = ""  # of isolation
        self.used = time.monotonic()  # when it was last asked
        self._settings = settings
        self._deadline: float | None = None
        self._stopping = ""
        self._is_to_blame = False
        self._ending = threading.Lock()  # the group's number is ours while it is not reaped
        self._is_reaped = False
        self._scratch = tempfile.TemporaryDirectory(
            prefix="farrier-build-", ignore_cleanup_errors=True
        )
        scratch = Path(self._scratch.name)
        self._sock, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=environment(scratch, os.environ),
                    cwd=scratch,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # our terminal's Ctrl-C is not its
                    preexec_fn=bound_to_this_process(),
                )
            except OSError:
                self._sock.close()
                self._scratch.cleanup()
                raise
        try:
            self._begin(scratch)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone. The zombie keeps its number from being reused."""
        if self._is_reaped:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def build(self, message: str) -> str:
        """The answer to a message. Raises ProcessEndedError; the process is of no use then."""
        self.used = time.monotonic()
        self._deadline = self.used + self._settings.build_timeout_s
        try:
            wire.send(self._sock, {"build": message})
            match wire.receive(self._sock, _MOST_BYTES):
                case {"built": str(answer)} if answer.isascii():
                    return answer
                case _:
                    raise ProcessEndedError("said something malformed", is_to_blame=True)
        except wire.WireError as error:
            raise ProcessEndedError(f"sent {error}", is_to_blame=True) from None
        except wire.ClosedError:
            raise self._ended() from None
        finally:
            self._deadline = None
            self.used = time.monotonic()

    def check(self) -> None:
        """Ends the process where it is past a limit: of time, of memory. Safe to call from another
        thread. Raises OSError where what it holds cannot be seen."""
        deadline, most = self._deadline, self._settings.job_memory_bytes
        if deadline is not None and time.monotonic() > deadline:
            limit = self._settings.build_timeout_s
            self.abort(f"took longer than {limit:g} s", is_to_blame=True)
        elif most and not self._is_reaped and held_bytes(self._process.pid, enough=most) > most:
            self.abort(f"held more than {most} bytes of memory", is_to_blame=True)

    def abort(self, how: str, *, is_to_blame: bool) -> None:
        """Ends it at once, stopped or not. The first reason stays. Safe to call from any thread."""
        with self._ending:
            if not self._is_reaped:
                if not self._stopping:
                    self._stopping, self._is_to_blame = how, is_to_blame
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Ends it, with what it left behind in its group."""
        with self._ending:
            if not self._is_reaped:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                self._is_reaped = True
        self._sock.close()
        self._scratch.cleanup()

    def _begin(self, scratch: Path) -> None:
        """Tells it its limits. Raises OSError where it does not come up."""
        settings = self._settings
        secrets = (settings.home, settings.token_file, settings.device_token_file, settings.tls_key)
        order = {
            "scratch": str(scratch),
            "secrets": [str(path) for path in secrets if path is not None],
            "memory_bytes": settings.job_memory_bytes,
        }
        self._sock.settimeout(_START_S)
        try:
            wire.send(self._sock, order)
            self.level = str(wire.receive(self._sock).get("ready", ""))
        except (wire.ClosedError, wire.WireError) as error:
            raise OSError(f"a compiling process ended at its start {error}") from error
        self._sock.settimeout(None)

    def _ended(self) -> ProcessEndedError:
        """How it ended by itself, or why it was ended."""
        if self._stopping:
            return ProcessEndedError(self._stopping, is_to_blame=self._is_to_blame)
        until = time.monotonic() + _END_S
        while not self.has_ended and time.monotonic() < until:
            time.sleep(0.01)
        self.close()
        return ProcessEndedError(describe_exit(self._process.returncode), is_to_blame=True)


class ProcessPool(Closing):
    """The compiling processes of a builder that are free, each for the job that it has seen. Safe
    to share between threads."""

    def __init__(self, most: int, start: Callable[[str], BuildProcess]) -> None:
        """Keeps up to `most` that are free; `start` makes one for a job."""
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
        """Keeps a process that has answered."""
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
