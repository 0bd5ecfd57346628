"""The HTTP connections of the API: a limit on their number, and on the time for which each may keep
the server waiting.

A connection either serves a request that the gate has admitted with a token, or waits for such a
request: it is new, has sent a part of the header, is idle between two requests, or has a request
that needs no token. Waiting connections may be closed. A header has to be complete `HEAD_S` after
the wait began. If there are too many connections, a waiting one is closed for each new one, so that
users are served however many connections are open. The server selects the holder with the most
waiting connections, and closes the one of them that has waited longest. The holder of a connection
is the user whose request it has served, or else the client's network address; so a client that
opens many connections displaces only its own. A serving connection is never closed for another, but
the connections of one user may serve at most half of the total number. A client that does not read
its answer is disconnected (`STALL_S`). Request bodies are limited in `gate` and `api.uploads`.
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

MOST = 4096  # The most connections; each takes 5 kB of memory, or 37 kB with a large head.
# The time in seconds from the start of the connection, or from the end of the previous response, to
# a complete header.
HEAD_S = 30
HANDSHAKE_S = 10.0  # The time for a TLS handshake, before which a connection does not count here.
# The time in which a client has to read most of `BUFFER_BYTES` that are waiting to be sent.
STALL_S = 60.0
# The time in which a client has to read the end of an answer before its connection closes.
LINGER_S = 10.0
BUFFER_BYTES = 64 << 10

_OTHER_FILES = 512  # File descriptors for Redis, logs and libraries.
_MOST_FILES = 1 << 16


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the hard limit of the system, at most
    `_MOST_FILES`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


Holder = str | tuple[str, ...]
"""The holder of a connection: the name of a user, or a tuple with the network of a client that is
not authenticated."""


def _stranger(peer: Any) -> Holder:
    """Return the holder of a connection whose user is not known yet: the client's IPv4 address, or
    the /64 network of its IPv6 address, in which a client can choose addresses freely."""
    try:
        address = ipaddress.ip_address(peer[0])
    except (TypeError, IndexError, ValueError):  # The peer has gone, or connected by a Unix socket.
        return ("",)
    return (str(address if address.version == 4 else ipaddress.ip_network((address, 64), False)),)


def _longest(waiting: Iterable[Connection]) -> Connection:
    return next(iter(waiting))


class Connections:
    """The connections of one server. Calling the object, as uvicorn does, creates the `Connection`
    of a new client.

    The number of connections is limited so that the process can also open a file for each
    connection.
    """

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = MOST if soft == resource.RLIM_INFINITY else (soft - _OTHER_FILES) // 2
        self.most = max(16, min(MOST, room))
        self.open: set[Connection] = set()
        # The waiting connections by holder, the longest wait first.
        self._waiting: dict[Holder, dict[Connection, None]] = {}
        self._serving: collections.Counter[str] = collections.Counter()  # by user
        self._turns = itertools.count()

    def __call__(self, **uvicorn: Any) -> Connection:
        return Connection(self, **uvicorn)

    def add(self, connection: Connection) -> None:
        """Register a new connection as waiting. If there are too many connections, one waiting
        connection is closed, which may be the new one."""
        self.open.add(connection)
        if len(self.open) > self.most:
            crowd = max(self._waiting.values(), key=lambda all_: (len(all_), -_longest(all_).turn))
            _longest(crowd).give_way(to=connection)

    def leave(self, connection: Connection) -> None:
        """Remove a connection, which is being closed, from all sets and counts."""
        self.open.discard(connection)
        self._move(connection)

    def wait(self, connection: Connection) -> None:
        """Mark a connection as waiting for its next request."""
        self._move(connection)
        connection.turn = next(self._turns)
        self._waiting.setdefault(connection.holder, {})[connection] = None

    def serve(self, connection: Connection, user: str) -> None:
        """Mark a connection as serving a request of `user`, who becomes its holder. Raises
        TooManyRequestsError if more than half of all connections would then serve this user; the
        user `DEFAULT` has no such limit."""
        serving = self._serving[user] - (connection.serves == user)
        if user != DEFAULT and serving >= self.most // 2:
            raise TooManyRequestsError(
                f"{serving} connections of {user} have a request in progress, the maximum",
                hint="close some of them; the maximum depends on the server's limit of "
                "open files (ulimit -Hn)",
                limit=CONNECTIONS,
            )
        self._move(connection)
        connection.holder = connection.serves = user
        self._serving[user] += 1

    def _move(self, connection: Connection) -> None:
        """Remove a connection from the set of waiting connections, or from the count of serving
        connections, to which it belongs."""
        waiting = self._waiting.get(connection.holder, {})
        waiting.pop(connection, None)
        if not waiting:
            self._waiting.pop(connection.holder, None)
        if connection.serves:
            self._serving[connection.serves] -= 1
            connection.serves = ""


class Connection(H11Protocol):
    """uvicorn's HTTP protocol, with a limit on each wait, and with problem documents as errors."""

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._all = connections
        self.holder: Holder = ()
        self.serves = ""  # The user whose request is in progress.
        self.turn = 0  # The position in the order in which waits began.
        self.app_state = {ADMITTED: self._admitted}  # The initial state of each request's scope.
        self._head: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Under TLS asyncio's default is eight times as high.
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
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
        # The server's protocol may have begun with the next request already.
        elif not self._answers():
            self._wait()

    def _admitted(self, user: str) -> None:
        """Mark this connection as serving a request of `user`; the gate calls this method when it
        admits the request. Raises TooManyRequestsError."""
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
        """Return whether a request of this connection is not yet completely answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def timeout_keep_alive_handler(self) -> None:
        """Close this connection, which has waited too long for a request."""
        if self._head is None:
            return  # The timer is uvicorn's own, and a request has come meanwhile.
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(
                SlowError(f"the headers of the request did not arrive within {HEAD_S:g} s")
            )
        else:
            self._close()

    def give_way(self, *, to: Connection) -> None:
        """Close this waiting connection, so that the new connection `to` can be served. If all
        other connections serve requests, `to` is this connection itself: its client is then
        answered with BusyError."""
        if to is self:
            self._refuse(BusyError(f"all {self._all.most} connections have a request in progress"))
        else:  # Abort at once: an orderly close would wait for the client.
            self._all.leave(self)
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not a valid HTTP request with a problem document; uvicorn calls
        this method."""
        limit = self.config.h11_max_incomplete_event_size
        self._refuse(
            UsageError(
                "the request cannot be read",
                hint=f"requests must use HTTP/1.1, with headers of at most {limit} bytes",
            )
        )

    def _refuse(self, error: FarrierError) -> None:
        """Send an error as the answer, and close the connection."""
        # An answer has begun, or is complete.
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        if self._answers():
            self.cycle.disconnected = True  # The route's own answer comes too late.
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
        """Close the connection once the client has read the answer, at the latest after
        `LINGER_S`."""
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
