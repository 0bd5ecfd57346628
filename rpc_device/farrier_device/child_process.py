"""A child process from its parent's side: start it with a socket, signal it, and end it.

Only `end` reaps the process. Until then its process id, which is also its group id, is not reused,
so that a signal from any thread reaches no other process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from farrier_device.closing import Closing

_GLANCE_S = 0.005  # A waiting parent looks as often at its child.
_EXIT_S = 10.0  # A process that says nothing more ends within that, on a busy machine.
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ChildProcess(Closing):
    """A child process that communicates over `sock`.

    The process leads a session of its own: Ctrl-C of the terminal does not reach it, and signals
    reach all processes that it starts. With `own_group` false, it stays in its parent's process
    group, and ends with that group.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        own_group: bool = True,
        pair: tuple[socket.socket, socket.socket] | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        preexec_fn: Callable[[], object] | None = None,
    ) -> None:
        """Start the process. `command` returns the command line from the descriptor of the
        process's end of the socket `pair`. Raises OSError if the process cannot start."""
        self._signal = os.killpg if own_group else os.kill
        self._reaping = threading.RLock()  # A handler of signals may end what its thread is ending.
        self.sock, theirs = pair or socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=env,
                    cwd=cwd,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=own_group,
                    preexec_fn=preexec_fn,
                )
        except BaseException:
            self.sock.close()
            raise
        self.pid = self._process.pid

    @property
    def stderr(self) -> IO[bytes]:
        """The pipe of the process's standard error, if `subprocess.PIPE` was requested."""
        assert self._process.stderr is not None
        return self._process.stderr

    @property
    def is_reaped(self) -> bool:
        return self._process.returncode is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and all processes that it started, unless it has been
        reaped."""
        with self._reaping, contextlib.suppress(ProcessLookupError):
            if not self.is_reaped:
                self._signal(self.pid, number)

    def stop(self) -> None:
        """Stop the process with all its threads; return when it has stopped or ended."""
        self.send(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """Continue the process after `stop`."""
        self.send(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code (negative: the signal), or None if the process still runs after
        `timeout_s`."""
        until = time.monotonic() + timeout_s
        while (code := self._code()) is None and time.monotonic() < until:
            time.sleep(_GLANCE_S)
        return code

    def ending(self) -> str:
        """Return a description of how the process has ended, once it has closed its output."""
        code = self.wait(_EXIT_S)
        return "still running, without an answer" if code is None else describe_exit(code)

    def end(self) -> int:
        """Kill the process and all processes that it started, even if stopped, and return its exit
        code; if it had ended before, that is its own exit code. A second call only returns the
        code."""
        with self._reaping:
            self.send(signal.SIGKILL)
            return self._process.wait()

    def close(self) -> None:
        self.end()
        self.sock.close()

    def _code(self) -> int | None:
        with contextlib.suppress(ChildProcessError):  # It is reaped.
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is None:
                return None
            return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        return self._process.returncode


def is_from_outside(code: int | None) -> bool:
    """Return whether an exit code means that an operator, or the kernel when short of memory, ended
    the process: a process's own errors never raise these signals."""
    return code is not None and -code in _OUTSIDE


def describe_exit(code: int) -> str:
    """Return the meaning of an exit code in words."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
