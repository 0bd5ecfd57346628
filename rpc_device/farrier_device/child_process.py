"""A child process from its parent's side: started with a socket to it, signalled, ended.

Nothing but `end` reaps it. Until then its number, which is that of its group as well, stays its
own, so a signal from any thread reaches no other process.
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
    """A process that is talked to over `sock`.

    It leads a session of its own: Ctrl-C of the terminal does not reach it, and signals reach all
    that it starts. Without `own_group` it belongs to the group of its parent, and ends with that.
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
        """`command` returns the words of the command from the descriptor of the process's end of
        the socket `pair`. Raises OSError if it cannot start."""
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
        """The pipe of its standard error, if `subprocess.PIPE` was asked for."""
        assert self._process.stderr is not None
        return self._process.stderr

    @property
    def is_reaped(self) -> bool:
        return self._process.returncode is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and to all that it started; a process that was reaped gets
        none."""
        with self._reaping, contextlib.suppress(ProcessLookupError):
            if not self.is_reaped:
                self._signal(self.pid, number)

    def stop(self) -> None:
        """Have it stand still with all its threads, and return when it does, or has ended."""
        self.send(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """End a `stop`."""
        self.send(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code (negative: the signal), or None if it still runs by then."""
        until = time.monotonic() + timeout_s
        while (code := self._code()) is None and time.monotonic() < until:
            time.sleep(_GLANCE_S)
        return code

    def ending(self) -> str:
        """Return in words how it has ended, once it says nothing more."""
        code = self.wait(_EXIT_S)
        return "still there, and silent" if code is None else describe_exit(code)

    def end(self) -> int:
        """End it at once and all that it started, stopped or not; return its exit code, which is
        its own if it had ended. A second call only returns that."""
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
    """Return whether an exit code says that somebody else ended the process: an operator, or the
    kernel, short of memory. What a process does itself never raises these signals."""
    return code is not None and -code in _OUTSIDE


def describe_exit(code: int) -> str:
    """Return the meaning of an exit code in words."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
