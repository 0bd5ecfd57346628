"""A device's session with its broker; any thread that finds the session lost opens a new one."""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable
from typing import TypeVar

from farrier_device.connection import (
    Connection,
    FencedOutError,
    RefusedError,
    SessionLostError,
    UnknownCallerError,
    UnreachableError,
    UsageError,
)
from farrier_device.identity import Identity
from farrier_device.protocol import device_pb2, version

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)

_MIN_INTERVAL_S = 0.05


class Session:
    """Calls of the broker in the device's current session, for use by several threads."""

    def __init__(
        self, connection: Connection, identity: Identity, description: device_pb2.Description
    ) -> None:
        self.heartbeat_s = 1.0  # The interval until the broker sets another.
        self._connection = connection
        self._identity = identity
        self._description = description
        self._instance = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._current: device_pb2.Session | None = None

    def call(self, send: Callable[[device_pb2.Session], Answer]) -> Answer:
        """Call `send` with a valid session and return its answer. If the broker has lost the
        session, call `send` once more with a new session.

        Raises the errors of `Connection`. FencedOutError is raised only if another process of the
        agent has opened a newer session.
        """
        session = self._valid(None)
        try:
            return send(session)
        except (SessionLostError, FencedOutError) as error:
            renewed = self._valid(session if isinstance(error, SessionLostError) else None)
            if renewed.id == session.id:
                raise FencedOutError(
                    f"another agent has registered as {self._identity.device!r} ({error}); give "
                    "each agent its own name"
                ) from None
        try:
            return send(renewed)
        except SessionLostError as error:
            raise UnreachableError(
                f"the broker lost a session that it has just opened: {error}"
            ) from None

    def _valid(self, lost: device_pb2.Session | None) -> device_pb2.Session:
        """Return the current session, after opening a new one if there is none or if the current
        one is `lost`."""
        with self._lock:
            if self._current is not None and lost is not None and self._current.id == lost.id:
                self._current = None
            if self._current is None:
                try:
                    self._current = self._opened()
                except UnknownCallerError:
                    if not self._identity.may_enrol_again():
                        raise
                    self._current = self._opened()
            return self._current

    def _opened(self) -> device_pb2.Session:
        """Open a session of the device, after enrolling the device if necessary."""
        self._identity.settle(self._connection)
        device = self._identity.device
        request = device_pb2.RegisterRequest(
            device_id=device,
            instance=self._instance,
            description=self._description,
            protocol=version.PROTOCOL,
            oldest_protocol=version.OLDEST,
        )
        try:
            reply = self._connection.register(request)
        except RefusedError as error:
            raise UsageError(f"the broker rejects the device {device!r}: {error}") from None
        _check_version(reply)
        self.heartbeat_s = max(reply.heartbeat_interval_ms / 1000, _MIN_INTERVAL_S)
        log.info("registered as %s", device)
        return device_pb2.Session(device_id=device, id=reply.session)


def _check_version(reply: device_pb2.RegisterReply) -> None:
    """Raise UsageError if the broker's version is too old for this agent."""
    speaks = version.named(reply.protocol)
    if speaks < version.OLDEST:
        raise UsageError(
            f"the broker uses version {speaks} of the protocol, but this agent needs "
            f"{version.OLDEST} or later; update the farm's server"
        )


class Backoff:
    """Pauses between retries, each twice as long as the previous one, plus random variation of up
    to a third."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s

    def next_s(self) -> float:
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._longest_s)
        return wait_s * random.uniform(1, 4 / 3)

    def reset(self) -> None:
        self._next_s = self._first_s
