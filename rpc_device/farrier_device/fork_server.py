"""The fork server of measurement children: a process that has imported all modules a child needs,
and forks a child for each library.

Starting Python takes longer than most measurements; a fork takes about a millisecond. The server
has one thread, runs no code of a library and reads no byte that such code has written: only its
parent (the keeper) communicates with the server, over a socket that no child has.

    keeper → server   {"fork": <working directory>, "choice": <the device>}, followed by the child's
                      socket and its stderr
    server → keeper   {"forked": true}                     or {"failed": <text>}
    keeper → server   {"end": <seconds within which the child may end by itself>}
    server → keeper   {"ended": <exit code>, "left": n}    the code is null if the server killed it

There is one child at a time. `left` counts processes that the child has started and that could not
be killed: if it is not 0, the server forks no further child. Where the kernel permits, the server
is the first process of a PID namespace (`namespaces`), which no process can leave; elsewhere the
server is the subreaper of the processes that a child starts.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from farrier_device import child, describe, namespaces, processes, sandbox, wire
from farrier_device.choice import Choice

_PR_SET_CHILD_SUBREAPER = 36
_MOST_ORDER = 64 << 10  # The most bytes of a keeper's message, which has a path or a number.
_END_S = 20.0  # The time for the kernel to free the memory of a large process.
_GLANCE_S = 0.0003  # The interval at which the end of a process is checked.


def main(argv: Sequence[str]) -> None:
    """Run the fork server. `argv` contains the limits of children as JSON, the process id of the
    server's parent (the keeper), and the descriptor of the socket."""
    serve(argv, child.main)


def serve(argv: Sequence[str], run: Callable[[child.ChildSetup], None]) -> None:
    """Fork children that call `run`, until the server's parent (the keeper) closes the socket."""
    limits, parent, descriptor = argv
    libc = sandbox.libc()
    sandbox.die_with(libc, int(parent))
    sandbox.hide(libc)
    with socket.socket(fileno=int(descriptor)) as sock:
        layers = (namespaces.PROCESSES,) if namespaces.enter(libc) else ()
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        server = _ForkServer(sock, sandbox.Limits(**json.loads(limits)), layers, run)
        child.warm_up()
        gc.freeze()  # Children then share the pages of these objects for longer.
        with contextlib.suppress(wire.ClosedError):
            wire.send(sock, {"ready": "+".join(layers)})
            while True:
                server.obey(wire.receive(sock, _MOST_ORDER))


class _ForkServer:
    def __init__(
        self,
        sock: socket.socket,
        limits: sandbox.Limits,
        layers: Sequence[str],
        run: Callable[[child.ChildSetup], None],
    ) -> None:
        self._sock = sock
        self._limits = limits
        self._layers = layers
        self._run = run
        self._cpus = describe.available_cpus()
        self._child = 0  # The child's process id, 0 if there is none.

    def obey(self, order: dict[str, object]) -> None:
        """Carry out one order of the server's parent (the keeper). Raises ClosedError if the parent
        has closed the socket."""
        match order:
            case {"fork": str(folder), "choice": dict(choice)}:
                files = wire.receive_files(self._sock, 2)
                wire.send(self._sock, self._fork(folder, Choice(**choice), *files))
            case {"end": int() | float() as grace_s}:
                code = self._ended(grace_s)
                wire.send(self._sock, {"ended": code, "left": self._clear()})
            case _:
                raise ValueError(f"the fork server received an unknown order: {order}")

    def _fork(self, folder: str, choice: Choice, talk: int, stderr: int) -> dict[str, object]:
        if self._child or self._clear():
            return {"failed": "an earlier child process is still running"}
        parent = os.getpid()
        try:
            self._child = os.fork()
        except OSError as error:
            return {"failed": error.strerror}
        else:
            if not self._child:
                setup = child.ChildSetup(
                    talk, self._limits, parent, self._layers, self._cpus, choice
                )
                self._be_child(setup, folder, stderr)
            return {"forked": True}
        finally:
            os.close(talk)
            os.close(stderr)

    def _be_child(self, setup: child.ChildSetup, folder: str, stderr: int) -> NoReturn:
        code = 1
        try:
            self._sock.close()
            os.setsid()
            os.dup2(stderr, 2)
            os.close(stderr)
            os.chdir(folder)
            self._run(setup)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _ended(self, grace_s: float) -> int | None:
        """Return the exit code of the child. If the child still runs after `grace_s` seconds, kill
        it and return None."""
        if not self._child:
            return None
        deadline = time.monotonic() + grace_s
        while (code := _reaped(self._child)) is None and time.monotonic() < deadline:
            time.sleep(_GLANCE_S)
        if code is None:
            os.kill(self._child, signal.SIGKILL)
        else:
            self._child = 0
        return code

    def _clear(self) -> int:
        """Kill all processes that the child has left running; return the number that could not be
        killed."""
        deadline = time.monotonic() + _END_S
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._child = 0
                return 0
            if pid:
                continue
            left = self._kill_all()
            if time.monotonic() >= deadline:
                return max(left, 1)
            time.sleep(_GLANCE_S)

    def _kill_all(self) -> int:
        """Kill the processes that the child has left running. In a PID namespace, all other
        processes of the namespace are killed, and 1 is returned. Elsewhere these are the present
        children of this process, because the kernel makes it the parent of processes whose parent
        has ended; their number is returned."""
        if self._layers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # All processes in the namespace except this one.
            return 1
        own = processes.children_of(os.getpid())
        for pid in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(own)


def _reaped(pid: int) -> int | None:
    """Return the exit code of a child, reaped if it has ended; None if it still runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
