"""Redis commands and scripts with retries and error messages for users. Only this module and
`async_connection.py` communicate with Redis."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import redis
import redis.backoff
import redis.exceptions
import redis.retry

from farrier.errors import ServiceError
from farrier_farm import disk
from farrier_farm.errors import StoreFullError
from farrier_farm.redis.retry import PATIENT, Breaker, Patience, check_request

CONNECTIONS = 100  # The most connections; a caller that finds none free waits.
_CONNECT_S = 5.0
_PIECE = 1 << 20  # The bytes of a snapshot that are copied at once.
_LONGEST_LINE = 1024
DATA = "valkey"
"""The name of the folder with the embedded server's data, next to the server's socket."""
ROOM_BYTES = 4 << 20
"""The free space in bytes below which the disk of the embedded server counts as full: enough for
thousands of short commands, or for one of the longest."""
ROOM = "free some space there; the farm then continues by itself"

_DURABLE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class Client:
    """A Redis client whose arguments and answers are text. Safe to share between threads; at most
    `connections` of them send commands at the same time. Every method raises ServiceError if Redis
    is out of reach, StoreFullError if Redis cannot write."""

    def __init__(
        self, url: str, patience: Patience = PATIENT, connections: int = CONNECTIONS
    ) -> None:
        self.url = url
        self._patience = patience
        self._breaker = Breaker()
        with readable(url):
            pool = redis.BlockingConnectionPool.from_url(
                url,
                max_connections=connections,
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
                **options(patience),
            )
        self._redis = redis.Redis.from_pool(pool)

    @property
    def address(self) -> str:
        return address(self._redis.connection_pool.connection_kwargs)

    def command(self, *words: str | int) -> Any:
        """Send a command and return its answer as Python's redis library does."""
        check_request()
        with self._breaker.guard(), translated(self.address):
            return self._tried(lambda: self._sent(words))

    def _sent(self, words: Sequence[str | int]) -> Any:
        return self._redis.execute_command(*words)  # type: ignore[no-untyped-call]

    def commands(self, each: Iterable[Sequence[str | int]]) -> list[Any]:
        """Send several commands in one round trip, and return the answers in the same order."""
        check_request()
        with self._breaker.guard(), translated(self.address):
            return list(self._tried(lambda: self._sent_together(each)))

    def _sent_together(self, each: Iterable[Sequence[str | int]]) -> list[Any]:
        with self._redis.pipeline(transaction=False) as pipeline:
            for words in each:
                pipeline.execute_command(*words)  # type: ignore[no-untyped-call]
            return pipeline.execute()

    def _tried(self, send: Callable[[], Any]) -> Any:
        tries = Tries(self._patience)
        while True:
            try:
                return send()
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
                time.sleep(tries.pause_s(error))

    def shortcomings(self) -> list[str]:
        """Return a sentence for each option of the Redis server whose value may cause the loss of
        acknowledged data; an empty list if the server does not reveal its options."""
        try:
            values = {option: self.command("CONFIG", "GET", option) for option in _DURABLE}
        except redis.exceptions.ResponseError:  # A managed server hides its configuration.
            return []
        return [
            f"{option} is {words[1]}, not {_DURABLE[option]}"
            for option, words in values.items()
            if words and words[1] != _DURABLE[option]
        ]

    def script(self, text: str) -> Script:
        """Return a Lua script that runs as one atomic change."""
        return Script(self, text)

    def shutdown(self) -> None:
        """Stop the server after a last flush of its append-only file to disk."""
        with contextlib.suppress(ServiceError):  # The server hangs up instead of answering.
            self.command("SHUTDOWN", "NOSAVE")

    def snapshot(self, file: IO[bytes]) -> None:
        """Write all data of the server at one moment to `file`, in the server's own format (RDB),
        as the server sends its data to a replica. The server continues to work meanwhile."""
        with translated(self.address):
            connection: Any = self._redis.connection_pool.make_connection()
            try:
                connection.connect()
                connection.send_command("SYNC")
                _copy_snapshot(connection._sock, file)
            except (OSError, ValueError) as error:
                raise ServiceError(
                    f"Redis at {self.address} does not send a snapshot of its data: {error}",
                    hint="a backup needs a server that accepts replicas (SYNC)",
                ) from error
            finally:
                connection.disconnect()

    def close(self) -> None:
        self._redis.close()


def _copy_snapshot(sock: socket.socket, file: IO[bytes]) -> None:
    """Copy the payload of the answer to SYNC, which is `$<length>` and the bytes, or `$EOF:<mark>`
    and the bytes until the mark. Empty lines before the payload, which keep the connection alive,
    are skipped. Raises ValueError, OSError."""
    stream = sock.makefile("rb")
    line = b""
    while not line:
        read = stream.readline(_LONGEST_LINE)
        if not read.endswith(b"\n"):
            raise ValueError("the server closed the connection")
        line = read.strip()
    if not line.startswith(b"$"):
        raise ValueError(line.decode(errors="replace"))
    if not line.startswith(b"$EOF:"):
        left = int(line[1:])
        while left:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise ValueError("the server closed the connection")
            file.write(piece)
            left -= len(piece)
        return
    mark = line[5:]
    tail = b""
    while not tail.endswith(mark):
        piece = stream.read1(_PIECE)
        if not piece:
            raise ValueError("the server closed the connection")
        tail += piece
        file.write(tail[: -len(mark)])
        tail = tail[-len(mark) :]


class Script:
    def __init__(self, client: Client, text: str) -> None:
        self._client = client
        self._text = text
        self._sha1 = digest(text)

    def __call__(self, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        try:
            return self._client.command("EVALSHA", self._sha1, len(keys), *keys, *args)
        # This is the first call, or the server was restarted.
        except redis.exceptions.NoScriptError:
            return self._client.command("EVAL", self._text, len(keys), *keys, *args)


def connect(url: str, patience: Patience = PATIENT) -> Client:
    """Return a client for a `redis://`, `rediss://` or `unix://` address, once the server has
    answered."""
    client = Client(url, patience)
    try:
        client.command("PING")
    except BaseException:
        client.close()
        raise
    return client


class Tries:
    """The attempts to execute a command. A retry is safe, because every change is a script that has
    the same effect if it runs twice."""

    def __init__(self, patience: Patience) -> None:
        self._silences = patience.silences
        self._pauses = iter(patience.pauses_s)

    def pause_s(self, error: Exception) -> float:
        """Return the pause before the next attempt, in seconds, after an attempt failed because the
        connection was refused or broke, or no answer arrived in time. Raises `error` if there
        should be no further attempt."""
        if isinstance(error, redis.exceptions.AuthenticationError):
            raise error
        if isinstance(error, redis.exceptions.TimeoutError):
            self._silences -= 1
            pause = 0.0 if self._silences else None
        else:
            pause = next(self._pauses, None)
        if pause is None:
            raise error
        return pause


def options(patience: Patience) -> dict[str, Any]:
    """Return the options of a connection pool. If all connections are in use, callers wait until
    one is free, which does not count as an outage; each command releases its connection after its
    answer, or after `patience`. The library's own retries are disabled, because its retries of a
    connection would multiply with the retries of a command."""
    return {
        "timeout": None,
        "decode_responses": True,
        "protocol": 2,
        "socket_timeout": patience.answer_s,
        "socket_connect_timeout": min(patience.answer_s, _CONNECT_S),
        "health_check_interval": 30,
    }


def address(arguments: Mapping[str, Any]) -> str:
    """Return the address of a server, from the arguments with which the library connects."""
    return str(arguments.get("path") or f"{arguments.get('host')}:{arguments.get('port')}")


def store_lacks_room(address: str) -> str:
    """Return a sentence if the disk of the embedded server at `address` is full. Return "" if there
    is room, or if another server is at the address, whose disk cannot be examined. The message is
    needed because a Redis that syncs before each answer exits when its disk is full."""
    data = Path(address).parent / DATA
    if not address.startswith("/") or not data.is_dir():
        return ""
    return disk.lacks_room(data, ROOM_BYTES)


def digest(script: str) -> str:
    """Return the hash by which EVALSHA identifies a script."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def readable(url: str) -> Iterator[None]:
    """Return a context that turns the library's error for a malformed address into a
    ServiceError."""
    try:
        yield
    except ValueError as error:
        raise ServiceError(
            f"cannot read the Redis address {url!r}: {error}",
            hint="REDIS_URL=redis://HOST:6379",
        ) from None


@contextlib.contextmanager
def translated(address: str) -> Iterator[None]:
    """Return a context that turns errors of the redis library into FarrierErrors."""
    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise ServiceError(f"Redis at {address} rejects the credentials: {error}") from error
    except redis.exceptions.TimeoutError as error:
        raise ServiceError(
            f"Redis at {address} does not answer: {error}",
            hint="try again later; if the error stays, look at the process of Redis and its disk",
        ) from error
    except redis.exceptions.ConnectionError as error:
        if why := store_lacks_room(address):
            raise StoreFullError(f"Redis at {address} cannot store: {why}", hint=ROOM) from error
        raise ServiceError(
            f"Redis at {address} does not answer: {error}",
            hint="start `farrier serve`, or set REDIS_URL to the Redis of the farm",
        ) from error
    except redis.exceptions.ResponseError as error:
        full = isinstance(error, redis.exceptions.OutOfMemoryError)  # "OOM" is not in its text
        if full or any(word in str(error) for word in ("MISCONF", "OOM ", "No space left")):
            why = store_lacks_room(address)
            raise StoreFullError(
                f"Redis at {address} cannot store: {error}{why and '; '}{why}",
                hint=ROOM
                if why
                else "free disk or memory there; the farm then continues by itself",
                is_answer=True,
            ) from error
        raise
