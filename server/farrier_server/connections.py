"""Connections of the API: how many there are, and how long one may keep the server waiting.

A connection serves a request that the gate has admitted, for its token, or it waits for one: new,
with half a head, idle between two, or busy with what needs no token. Those that wait are worth
nothing: a head is to be whole `HEAD_S` after the wait began, and where there are too many, one of
them goes for the newest, so that whoever has a token is served however many connections stand open.
It is of the holder with the most that wait, and of these the one that has waited longest: a holder
is a user whose request the connection has served, or else the address of a stranger, so a crowd of
either ends itself and nobody else. One that serves is never ended for another, but of a user's at
most half of all serve; a client that does not read its answer is ended (`STALL_S`). Bodies are in
`gate` and `api.uploads`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import http
import ipaddress
import itertools
import resource
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from farrier.errors import FarrierError, TooManyRequestsError, UsageError
from farrier_farm.access.users import DEFAULT
from farrier_server.gate import ADMITTED
from farrier_server.limits import CONNECTIONS
from farrier_server.problems import BusyError, SlowError, answer_to

MOST = 4096  # connections; each takes 5 kB of memory, 37 where its head is large
HEAD_S = 30  # from the connection, or from the end of the response before, to a whole head
HANDSHAKE_S = 10.0  # of TLS, before which a connection counts for nothing here
STALL_S = 60.0  # in which a client that has let `BUFFER_BYTES` gather reads most of them
LINGER_S = 10.0  # in which a client takes the end of what it was sent before a connection closes
BUFFER_BYTES = 64 << 10

_OTHER_FILES = 512  # descriptors: Redis, logs, libraries
_MOST_FILES = 1 << 16


def raise_file_limit() -> None:
    """Let this process have as many open files as the system allows it, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


Holder = str | tuple[str, ...]
"""The holder of a connection: a user's name, or a tuple with the network of a stranger."""


def _stranger(peer: Any) -> Holder:
    """The network that a peer can choose addresses of: one of IPv4, 2^64 of IPv6."""
    try:
        address = ipaddress.ip_address(peer[0])
    except (TypeError, IndexError, ValueError):  # it has gone, or came by a socket of this machine
        return ("",)
    return (str(address if address.version == 4 else ipaddress.ip_network((address, 64), False)),)


def _longest(waiting: Iterable[Connection]) -> Connection:
    return next(iter(waiting))


class Connections:
    """Those of one server. Called with what uvicorn tells a protocol, makes the next.

    There are at most as many as the limit of open files leaves room for: each may have a file."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = MOST if soft == resource.RLIM_INFINITY else (soft - _OTHER_FILES) // 2
        self.most = max(16, min(MOST, room))
        self.open: set[Connection] = set()
        self._waiting: dict[Holder, dict[Connection, None]] = {}  # the longest in waiting is first
        self._serving: collections.Counter[str] = collections.Counter()  # by user
        self._turns = itertools.count()

    def __call__(self, **uvicorn: Any) -> Connection:
        return Connection(self, **uvicorn)

    def add(self, connection: Connection) -> None:
        """Count a new connection, which waits, and make room for it."""
        self.open.add(connection)
        if len(self.open) > self.most:
            crowd = max(self._waiting.values(), key=lambda all_: (len(all_), -_longest(all_).turn))
            _longest(crowd).give_way(to=connection)

    def leave(self, connection: Connection) -> None:
        """Forget one that is closing: its place is free."""
        self.open.discard(connection)
        self._move(connection)

    def wait(self, connection: Connection) -> None:
        """Let a connection wait for its next request."""
        self._move(connection)
        connection.turn = next(self._turns)
        self._waiting.setdefault(connection.holder, {})[connection] = None

    def serve(self, connection: Connection, user: str) -> None:
        """Let a connection serve a user, its holder from now on. Raises TooManyRequestsError if it
        would be more than half of all, unless the user is `DEFAULT`."""
        serving = self._serving[user] - (connection.serves == user)
        if user != DEFAULT and serving >= self.most // 2:
            raise TooManyRequestsError(
                f"{serving} connections of {user} have a request under way, and no more are taken",
                hint="end some; the server's limit of open files (ulimit -Hn) decides on how many "
                "there are",
                limit=CONNECTIONS,
            )
        self._move(connection)
        connection.holder = connection.serves = user
        self._serving[user] += 1

    def _move(self, connection: Connection) -> None:
        """Take one from where it is."""
        waiting = self._waiting.get(connection.holder, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.holder, None)
        if connection.serves:
            self._serving[connection.serves] -= 1
            connection.serves = ""


class Connection(H11Protocol):
    """uvicorn's protocol, with an end to each wait, and errors of the API's shape."""

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._all = connections
        self.holder: Holder = ()
        self.serves = ""  # the user whose request is under way
        self.turn = 0  # the order in which waits began
        self.app_state = {ADMITTED: self._admitted}  # of each request's scope
        self._head: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)  # asyncio has 8 times that under TLS
        self.holder = _stranger(transport.get_extra_info("peername"))
        self._wait()
        self._all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.leave(self)
        for timer in (self._head, self._stall, self._linger):
            if timer is not None:
                timer.cancel()

    def handle_events(self) -> None:
        super().handle_events()
        if self.transport.is_closing():
            self._close()
        elif self._answers():
            self._stop_waiting_for_a_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif not self._answers():  # uvicorn may have begun with the next request
            self._wait()

    def _admitted(self, user: str) -> None:
        """Told by the gate: a request of the user is under way, and this connection is kept. Raises
        TooManyRequestsError."""
        self._all.serve(self, user)

    def _wait(self) -> None:
        self._all.wait(self)
        self._stop_waiting_for_a_head()
        self._head = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def _stop_waiting_for_a_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _answers(self) -> bool:
        """Whether there is a request that has not been answered whole."""
        return self.cycle is not None and not self.cycle.response_complete

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that has waited for too long."""
        if self._head is None:
            return  # uvicorn's own timer: a request came meanwhile
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(SlowError(f"the head of the request did not arrive within {HEAD_S:g} s"))
        else:
            self._close()

    def give_way(self, *, to: Connection) -> None:
        """Ends this connection, which waits; where it is the one that has just come, all others
        serve a request, and it is told so."""
        if to is self:
            self._refuse(BusyError(f"all {self._all.most} connections have a request under way"))
        else:  # at once: a polite end would wait for the other side
            self._all.leave(self)
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls where the bytes are no request, or no body of one."""
        limit = self.config.h11_max_incomplete_event_size
        self._refuse(
            UsageError(
                "the request cannot be read",
                hint=f"HTTP/1.1, with a head of at most {limit} bytes",
            )
        )

    def _refuse(self, error: FarrierError) -> None:
        """Answers out of turn, and closes."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # in an answer, or past it
            self.transport.abort()
            return
        if self._answers():
            self.cycle.disconnected = True  # its own answer comes too late
            self.cycle.message_event.set()
        answer = answer_to(error)
        answer.headers["Connection"] = "close"
        status = http.HTTPStatus(answer.status_code)
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=status.phrase.encode()),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._close()

    def _close(self) -> None:
        """Close once the client has read what was sent, or has not for `LINGER_S`."""
        self._all.leave(self)
        self.transport.close()
        if self._linger is None:
            self._linger = self.loop.call_later(LINGER_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
