"""The layers of a sandbox for a process that runs untrusted code, and the parent's handle of such a
process.

The process itself calls `enter` before it takes any work. `SandboxedProcess` is its parent's
handle, or that of the `fork_server` which forks the process. Whether a layer works depends on
kernel and architecture, so `enter` returns the layers that it could install, as a level such as
"seccomp+landlock+pidns+rlimits", and the parent may require some of them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from farrier_device import denials, landlock, namespaces, seccomp, wire
from farrier_device.child_process import ChildProcess, describe_exit
from farrier_device.profiles import HOST, Profile

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38

_START_TIMEOUT_S = 30.0  # The time until a process greets.
_MOST_GREETING = 4096  # Bytes: the names of layers, and a number.
_STDERR_TAIL = 2000  # bytes
_PACKAGE_ROOT = str(Path(__file__).parent.parent)
_BOOTSTRAP = "import sys; sys.path.insert(0, sys.argv[1]); import {0}; {0}.main(sys.argv[2:])"


class SandboxError(Exception):
    """A sandboxed process could not be started, or this machine cannot isolate the process as
    required."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The resources that a sandboxed process may use over its lifetime."""

    memory_bytes: int  # address space
    cpu_s: int = 3600  # Of all threads together.
    open_files: int = 4096
    tasks: int = 1088  # Processes and threads: the 1,024 that a policy may request, and a few.
    file_bytes: int = 64 << 10  # The size of its stderr, the only file that it can write.

    @classmethod
    def of_machine(cls) -> Limits:
        """Return limits that allow all of the machine's memory, and have defaults otherwise."""
        return cls(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library of this process; forked children inherit the loaded library."""
    return ctypes.CDLL(None, use_errno=True)


def die_with(library: ctypes.CDLL, parent: int) -> None:
    """Have the kernel kill the calling process when its parent ends; if the parent has ended
    already, exit now."""
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def hide(library: ctypes.CDLL) -> None:
    """Keep the memory of the calling process from other processes of the same user, and out of core
    dumps."""
    library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _lower(resource.RLIMIT_CORE, 0)


def enter(
    limits: Limits,
    parent: int,
    *,
    within: Sequence[str] = (),
    reads: Mapping[Path, landlock.Access] | None = None,
    profile: Profile = HOST,
    filtered: Callable[[ctypes.CDLL], bool] | None = None,
) -> str:
    """Enclose the calling process, which must have one thread, in the sandbox; return the level
    reached.

    Afterwards the process dies with its parent, leaves no core dump and gains no privilege;
    `landlock` and `seccomp` describe the other restrictions. `within` are the layers already in
    force, `reads` are paths that stay readable, `profile` contains the additions for a kind of
    device, and `filtered` installs another filter of system calls. For a driver that is a Python
    package, the filter has to be a deny-list; the level then contains `denials` in place of
    `seccomp`.
    """
    library = libc()
    die_with(library, parent)
    hide(library)
    if profile.bounds_addresses:
        _lower(resource.RLIMIT_AS, limits.memory_bytes)
    _lower(resource.RLIMIT_CPU, limits.cpu_s)
    # The limit counts the processes of a user, and in a namespace only those within.
    if namespaces.PROCESSES in within:
        _lower(resource.RLIMIT_NPROC, limits.tasks + profile.tasks)
    _lower(resource.RLIMIT_NOFILE, limits.open_files)
    if profile.bounds_files:
        _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    level = [*within, "rlimits"]
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        if landlock.restrict(library, profile.access() | dict(reads or {})):
            level.insert(0, "landlock")
        if profile.is_package:
            level[:0] = ["denials"] * denials.restrict_alone(library)
        elif seccomp.restrict(library, profile) if filtered is None else filtered(library):
            level.insert(0, "seccomp")
    return "+".join(level)


def require(level: str, required: str) -> None:
    """Raise SandboxError if a layer of `required` ("seccomp+landlock") is not in `level`."""
    missing = sorted(set(filter(None, required.split("+"))) - set(level.split("+")))
    if missing:
        raise SandboxError(
            f"the policy requires the sandbox {required!r}, but this machine offers {level!r}: "
            f"{' and '.join(missing)} missing"
        )


class SandboxedProcess:
    """A separate process that runs the function `main` of a Python module, and communicates over
    `sock`.

    The process has its own session, an empty environment, an empty private working directory, and
    no open file except the socket and a stderr of limited size. It dies with the *thread* that
    creates this object, so that thread must live as long as the process is needed.
    """

    level: str  # The level that `enter` returned.
    greeter: int  # The id of the process that greeted; 0 if the kernel did not report it.

    def __init__(
        self,
        module: str,
        limits: Limits,
        *,
        name: str,
        required: str = "",
        words: Sequence[str] = (),
    ) -> None:
        """Start the process. `words` are further arguments of its `main`. Raises SandboxError if
        the process does not start, or lacks a required layer."""
        self._process: ChildProcess | None = None
        self._name = name
        self._stderr = os.memfd_create("farrier-stderr", os.MFD_CLOEXEC)
        self._directory = ""
        pair = socket.socketpair()
        self.sock = pair[0]
        wire.ask_for_senders(self.sock)
        own = [json.dumps(dataclasses.asdict(limits)), str(os.getpid())]
        # Isolated mode without `site`: it sees the standard library and this package, and starts
        # quickly.
        flags = ["-I", "-S", "-c", _BOOTSTRAP.format(module), _PACKAGE_ROOT]
        try:
            self._directory = tempfile.mkdtemp(prefix="farrier-child-")
            self._process = ChildProcess(
                lambda line: [sys.executable, *flags, *own, str(line), *words],
                pair=pair,
                stderr=self._stderr,
                env={},
                cwd=self._directory,
            )
            self.pid = self._process.pid
            self.greeter, self.level = self._greeting()
            require(self.level, required)
        except OSError as error:
            self.kill()
            raise SandboxError(f"{self._name} cannot be started: {error}") from None
        except BaseException:
            self.kill()
            raise

    def _greeting(self) -> tuple[int, str]:
        try:
            return greeting(self.sock)
        except (wire.ClosedError, wire.WireError, TimeoutError):
            self._end()
            raise SandboxError(f"{self._name} did not start: {self.said()}") from None

    def kill(self) -> str:
        """Kill the process and all processes that it started, even if stopped. Return how the
        process had ended, if it had ended before. A second call only returns that text again."""
        how = self._end()
        self.sock.close()
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1
        if self._directory:  # This may be a second call, if a signal ended the first one early.
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = ""
        return how

    def stop(self) -> None:
        """Stop the process with all its threads; return when it has stopped or ended."""
        assert self._process is not None
        self._process.stop()

    def go_on(self) -> None:
        """Continue the process after `stop`."""
        assert self._process is not None
        self._process.go_on()

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code (negative: the signal), or None if the process still runs after
        `timeout_s`."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def said(self) -> str:
        """The end of the process's output on stderr."""
        return end_of(self._stderr)

    def _end(self) -> str:
        return "not started" if self._process is None else describe_exit(self._process.end())


def greeting(sock: socket.socket) -> tuple[int, str]:
    """Wait for the greeting of a process; return its process id (`wire.sender`) and the isolation
    level that it has reached. Raises ClosedError, WireError, TimeoutError."""
    pid = wire.sender(sock, _START_TIMEOUT_S)
    return pid, str(wire.receive(sock, _MOST_GREETING, _START_TIMEOUT_S).get("ready", ""))


def end_of(stderr: int) -> str:
    """Return the last lines of a file that contains the stderr of a process."""
    size = os.fstat(stderr).st_size
    tail = os.pread(stderr, _STDERR_TAIL, max(0, size - _STDERR_TAIL))
    return tail.decode(errors="replace").strip() or "no output"


def _lower(limit: int, value: int) -> None:
    """Permanently lower a resource limit to `value`, unless it is lower already."""
    _, hard = resource.getrlimit(limit)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (bound, bound))
