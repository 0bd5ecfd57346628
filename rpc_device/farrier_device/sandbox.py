"""Layers of protection around a process that runs unread code, and who ends it when it hangs.

`enter` is called by the process itself, before it takes any work; `SandboxedProcess` is its keeper.
What a layer needs differs by kernel and architecture, so `enter` says which it could raise, as a
level such as "seccomp+landlock+rlimits", and a keeper may require some.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from farrier_device import landlock, seccomp, wire

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_START_TIMEOUT_S = 30.0
_STDERR_TAIL = 2000  # bytes
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PACKAGE_ROOT = str(Path(__file__).parent.parent)
_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv[1]); import {0}; {0}.main(sys.argv[2:])"


class SandboxError(Exception):
    """The process could not be started, or this machine cannot isolate it as required."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a sandboxed process may use in its life."""

    memory_bytes: int  # address space
    cpu_s: int = 3600  # of all threads together
    open_files: int = 4096
    file_bytes: int = 64 << 10  # of what it says on stderr, the one file it can write

    @classmethod
    def of_machine(cls) -> Limits:
        """All of the machine's memory, and the other limits as they are."""
        return cls(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def enter(
    limits: Limits,
    parent: int,
    *,
    reads: Mapping[Path, landlock.Access] | None = None,
    filtered: Callable[[ctypes.CDLL], bool] = seccomp.restrict,
) -> str:
    """Encloses the calling process, which must have one thread; returns the level reached.

    Afterwards it dies with its parent, leaves no core dump and gains no privilege; see `landlock`
    and `seccomp` for what else it can no longer do. `reads` are paths that stay open to it, and
    `filtered` installs another filter of system calls.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it died before it could be watched
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_AS, limits.memory_bytes)
    _lower(resource.RLIMIT_CPU, limits.cpu_s)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    level = ["rlimits"]
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        if landlock.restrict(libc, reads):
            level.insert(0, "landlock")
        if filtered(libc):
            level.insert(0, "seccomp")
    return "+".join(level)


def require(level: str, required: str) -> None:
    """Raises SandboxError where a wall of `required` ("seccomp+landlock") is not in `level`."""
    missing = sorted(set(filter(None, required.split("+"))) - set(level.split("+")))
    if missing:
        raise SandboxError(
            f"the policy requires a sandbox of {required!r}, but this machine offers {level!r}: "
            f"{' and '.join(missing)} missing"
        )


class SandboxedProcess:
    """A Python module's `main` in a process of its own, talked to over `sock`.

    It has its own session, an empty environment, an empty private directory to stand in, and no
    open file but the socket and a bounded stderr. It dies with the *thread* that makes this object,
    so that must be one that lives as long as the process is needed.
    """

    level: str  # what `enter` answered

    def __init__(
        self,
        module: str,
        limits: Limits,
        *,
        required: str = "",
        name: str = "the measurement child",
        words: Sequence[str] = (),
    ) -> None:
        """`words` are more arguments of its `main`. Raises SandboxError where it does not start, or
        without a wall that is required."""
        self._process: subprocess.Popen[bytes] | None = None
        self._name = name
        self._stderr = os.memfd_create("farrier-stderr", os.MFD_CLOEXEC)
        self._directory = ""
        self.sock, theirs = socket.socketpair()
        own = [json.dumps(dataclasses.asdict(limits)), str(os.getpid()), str(theirs.fileno())]
        # Isolated, without `site`: it sees the standard library and this package, and is quick.
        flags = ["-I", "-S", "-c", _BOOTSTRAP.format(module), _PACKAGE_ROOT]
        try:
            self._directory = tempfile.mkdtemp(prefix="farrier-child-")
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, *flags, *own, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    env={},
                    cwd=self._directory,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            self.pid = self._process.pid
            self.level = self._greeting()
            require(self.level, required)
        except OSError as error:
            self.kill()
            raise SandboxError(f"{self._name} cannot be started: {error}") from None
        except BaseException:
            self.kill()
            raise

    def _greeting(self) -> str:
        self.sock.settimeout(_START_TIMEOUT_S)
        try:
            greeting: dict[str, Any] = wire.receive(self.sock)
        except (wire.ClosedError, wire.WireError, TimeoutError):
            self._end()
            raise SandboxError(f"{self._name} did not start: {self.said()}") from None
        return str(greeting.get("ready", ""))

    def kill(self) -> str:
        """Ends the process and all it started, at once, stopped or not; says how it had ended if it
        had. A second call does nothing but say so again."""
        how = self._end()
        self.sock.close()
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1
        if self._directory:  # also in a second call, where a signal ended the first one early
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""
        return how

    def stop(self) -> None:
        """Has it stand still with all its threads, and returns when it does, or has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """Ends a `stop`."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code (negative: the signal), or None if it still runs after `timeout_s`."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def said(self) -> str:
        """The end of what it wrote on stderr."""
        size = os.fstat(self._stderr).st_size
        tail = os.pread(self._stderr, _STDERR_TAIL, max(0, size - _STDERR_TAIL))
        return tail.decode(errors="replace").strip() or "it said nothing"

    def _end(self) -> str:
        if self._process is None:
            return "not started"
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return describe_exit(self._process.returncode)


def is_from_outside(code: int | None) -> bool:
    """Whether an exit code of `subprocess` says that somebody else ended the process: an operator,
    or the kernel, short of memory. What a process does itself never raises these signals."""
    return code is not None and -code in _OUTSIDE


def describe_exit(code: int) -> str:
    """What an exit code of `subprocess` means, in words."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _lower(limit: int, value: int) -> None:
    """Sets a limit for good, or leaves a lower one that is there."""
    _, hard = resource.getrlimit(limit)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (bound, bound))
