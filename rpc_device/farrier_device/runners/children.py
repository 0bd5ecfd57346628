"""The owner of measurement children and their fork server; there is at most one child at a time."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from farrier_device import cgroups, devices, wire
from farrier_device.cgroups import Group
from farrier_device.choice import Choice
from farrier_device.closing import Closing
from farrier_device.library_form import HOST_CODE
from farrier_device.processes import Handle
from farrier_device.sandbox import (
    Limits,
    SandboxedProcess,
    SandboxError,
    end_of,
    greeting,
    require,
)

_FORK_SERVER = "farrier_device.fork_server"
_NAME = "the measurement child"
_MOST_REPLY = 4096  # The most bytes of a fork server's message.
_FORK_S = 10.0  # The time limit of a fork, which takes milliseconds, or the fork server is stopped.
_END_S = 30.0  # The time for a fork server to end a child, which it tries for 20 s.
_GONE_S = 20.0  # The time for the kernel to end a killed process.


class Ending(NamedTuple):
    """The end of a child: its exit code as `subprocess` defines it, and the end of its output on
    stderr. The code is None if the child was still running and was killed."""

    code: int | None
    said: str


class Child(Closing):
    """A measurement child from its parent's side, with its socket and its other resources, such as
    its working directory."""

    level: str  # of isolation

    def __init__(self) -> None:
        """Create the resources of a child. Raises OSError if the system runs out of them."""
        self.handle: Handle | None = None
        self.stderr = -1
        self.folder = tempfile.mkdtemp(prefix="farrier-child-")
        self.sock, self.theirs = socket.socketpair()
        try:
            wire.ask_for_senders(self.sock)
            self.stderr = os.memfd_create("farrier-stderr", os.MFD_CLOEXEC)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        assert self.handle is not None
        return self.handle.pid

    def greet(self) -> None:
        """Wait for the child's greeting. Raises SandboxError."""
        self.theirs.close()
        try:
            pid, self.level = greeting(self.sock)
        except (wire.ClosedError, wire.WireError, TimeoutError):
            raise SandboxError(f"{_NAME} did not start: {end_of(self.stderr)}") from None
        self.handle = Handle(pid) if pid else None

    def close(self) -> None:
        """Release the resources of the child, whose process the fork server ends."""
        self.sock.close()
        self.theirs.close()
        if self.handle is not None:
            self.handle.close()
        if self.stderr >= 0:
            os.close(self.stderr)
            self.stderr = -1
        shutil.rmtree(self.folder, ignore_errors=True)


class _ServerError(Exception):
    """The fork server has ended, or does not answer."""


class Children(Closing):
    """The owner of a child, which is forked when needed, by a fork server that is also started when
    needed.

    A separate thread communicates with the fork server: the server dies with the thread that
    started it, and a signal that interrupts a caller must not leave a half-finished exchange of
    messages.
    """

    def __init__(
        self, limits: Limits, required: str, device: str = "", secrets: Sequence[Path] = ()
    ) -> None:
        """Create the owner, without a child yet. `device` is the name of one of several devices of
        this machine; the driver of the device cannot read the `secrets`."""
        self._device = device
        self._secrets = secrets
        self._limits = limits
        self._required = required
        self._server: SandboxedProcess | None = None
        self._group: Group | None = None
        self._first: Handle | None = None  # The fork server itself, if a process stands before it.
        self._child: Child | None = None
        self._is_ending = False
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "farrier-spawn")
        # The pool starts its thread before there is a child. If a signal interrupted the start of
        # the thread later, the pool would not know the thread, and `close` would not wait for it.
        self._thread.submit(int).result()

    def child(self, kind: str = HOST_CODE) -> Child:
        """Return the present child, after forking one for a kind of device if there is none. Raises
        SandboxError."""
        return self._child or self._thread.submit(self._forked, kind).result()

    def end(self, grace_s: float = 0.0) -> Ending | None:
        """End the child and all processes that it has started. Return the ending of the child,
        which may end by itself within `grace_s` seconds before it is killed; None without a child.

        When the call returns, these processes and their threads have ended, and their memory and
        the child's folder are released. Raises SandboxError if some of them cannot be ended.
        """
        if self._child is None:
            return None
        return self._thread.submit(self._ended, grace_s).result()

    def close(self) -> None:
        """End the child and the fork server that forked it; a second call does nothing."""
        with contextlib.suppress(RuntimeError):  # The thread has ended in an earlier call.
            self._thread.submit(self._close).result()
        self._thread.shutdown()

    # These run in the thread.

    def _close(self) -> None:
        with contextlib.suppress(SandboxError):  # It is killed, and the kernel's to end.
            self._end_server()
        self._forget()

    def _forked(self, kind: str) -> Child:
        if self._is_ending:  # The child could not be ended when it should have been.
            self._ended(0.0)
        if self._child is not None:  # A caller that was interrupted has requested it.
            return self._child
        try:
            return self._fork(kind)
        except _ServerError:  # It was killed since the last child, or stands still.
            pass
        try:
            return self._fork(kind)
        except _ServerError as error:
            raise SandboxError(f"{_NAME} cannot be started: {error}") from None

    def _fork(self, kind: str) -> Child:
        """Fork a child and return it. Raises SandboxError, and _ServerError if the server has to be
        restarted."""
        if self._server is None:
            self._start()
        try:
            self._child = child = Child()
            device = devices.kind_named(kind)
            profile = device.profile
            choice = Choice.here(kind, self._device, device, self._secrets)
            order = {"fork": child.folder, "choice": dataclasses.asdict(choice)}
            reply = self._ask(order, [child.theirs.fileno(), child.stderr], _FORK_S)
            if why := reply.get("failed"):
                raise SandboxError(f"{_NAME} cannot be started: {why}")
            child.greet()
            if self._group is not None:
                child.level = f"{cgroups.NAME}+{child.level}"
            require(child.level, "+".join((self._required, *profile.required)))
        except OSError as error:
            self._ended(0.0)
            raise SandboxError(f"{_NAME} cannot be started: {error}") from None
        except SandboxError as error:
            self._ended(0.0)
            if self._server is None:  # It was killed before the child could greet.
                raise _ServerError(str(error)) from None
            raise
        except BaseException:
            self._ended(0.0)
            raise
        return child

    def _start(self) -> None:
        self._server = SandboxedProcess(
            _FORK_SERVER, self._limits, name=f"the fork server of {_NAME}"
        )
        pid = self._server.greeter
        if pid not in (0, self._server.pid):
            self._first = Handle(pid)
        self._group = self._group_of({pid or self._server.pid, self._server.pid})

    def _group_of(self, pids: set[int]) -> Group | None:
        """Return a control group that contains the processes of the server, and therefore every
        process that it will fork; None if the system permits no such group."""
        place = cgroups.place()
        if place is None:
            return None
        group = None
        try:
            group = Group(place, self._limits.memory_bytes, self._limits.tasks)
            for pid in pids:
                group.take(pid)
        except OSError:  # The system allows less than it seemed to; the level states that.
            if group is not None:
                group.close()
            return None
        return group

    def _ask(self, order: dict[str, Any], files: Sequence[int], within_s: float) -> dict[str, Any]:
        """Send an order to the fork server and return its reply. Raises _ServerError, after which
        the server has been ended."""
        why = "its fork server was ended"
        if self._server is not None:
            sock = self._server.sock
            sock.settimeout(within_s)
            try:
                wire.send(sock, order)
                wire.send_files(sock, files)
                return wire.receive(sock, _MOST_REPLY, within_s)
            except (wire.ClosedError, wire.WireError):
                why = "its fork server has ended"
            except TimeoutError:
                why = f"its fork server did not answer within {within_s:g} s"
        self._end_server()
        raise _ServerError(why)

    def _ended(self, grace_s: float) -> Ending | None:
        if self._child is None:
            return None
        self._is_ending = True
        try:
            reply = self._ask({"end": grace_s}, (), _END_S)
            code, left = reply["ended"], reply["left"]
        except _ServerError:
            code, left = -signal.SIGKILL, 0
        if left and (self._first or self._group) is not None:
            self._end_server()  # The kernel ends all processes in its namespace or group.
        elif left:
            raise SandboxError(f"cannot end {left} processes that a library started")
        ending = Ending(code, end_of(self._child.stderr))
        self._forget()
        return ending

    def _forget(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
        self._is_ending = False

    def _end_server(self) -> None:
        """Kill the fork server and the child. Raises SandboxError if they cannot be ended."""
        child = None if self._child is None else self._child.handle
        handles = [handle for handle in (self._first, child) if handle is not None]
        for handle in handles:
            handle.send(signal.SIGKILL)
        if self._server is not None:
            self._server.kill()
        for handle in handles:
            if not handle.wait(_GONE_S):
                raise SandboxError(f"cannot end the process {handle.pid} of {_NAME}")
        if self._group is not None:
            if not self._group.kill(_GONE_S):
                raise SandboxError(f"cannot end a process of {_NAME}")
            self._group.close()
        if self._first is not None:
            self._first.close()
        self._server = self._first = self._group = None
