"""Redis commands and scripts with retries, and errors for users. This module and
`async_connection.py` are the only ones that communicate with Redis."""

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
"""The folder of the embedded server's data, beside its socket."""
ROOM_BYTES = 4 << 20
"""The room that this server has to have: for thousands of commands, or one of the longest."""
ROOM = "free some space there: the farm goes on by itself then"

_DURABLE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class Client:
    """A Redis client that takes and returns text. Safe to share between threads, of which
    `connections` send at once. Every method raises ServiceError if Redis is out of reach,
    StoreFullError if it cannot write."""

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
        """Send one command; the answer has the form that Python's redis returns."""
        check_request()
        with self._breaker.guard(), translated(self.address):
            return self._tried(lambda: self._sent(words))

    def _sent(self, words: Sequence[str | int]) -> Any:
        return self._redis.execute_command(*words)  # type: ignore[no-untyped-call]

    def commands(self, each: Iterable[Sequence[str | int]]) -> list[Any]:
        """Send commands in one round trip, and return all answers."""
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
        """Return the options of the server with which it may lose acknowledged data, as sentences;
        empty if the server hides its options."""
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
        """Stop the server, after a last flush of its append-only file."""
        with contextlib.suppress(ServiceError):  # The server hangs up instead of answering.
            self.command("SHUTDOWN", "NOSAVE")

    def snapshot(self, file: IO[bytes]) -> None:
        """Write all data of the server at one moment, in its own format (RDB), as it sends it to a
        replica. The server keeps working meanwhile."""
        with translated(self.address):
            connection: Any = self._redis.connection_pool.make_connection()
            try:
                connection.connect()
                connection.send_command("SYNC")
                _copy_snapshot(connection._sock, file)
            except (OSError, ValueError) as error:
                raise ServiceError(
                    f"Redis at {self.address} does not hand over what it holds: {error}",
                    hint="a backup needs a server that takes replicas (SYNC)",
                ) from error
            finally:
                connection.disconnect()

    def close(self) -> None:
        self._redis.close()


def _copy_snapshot(sock: socket.socket, file: IO[bytes]) -> None:
    """Copy the payload of SYNC: `$<length>`, or `$EOF:` and a mark that ends it. Until it begins,
    the server sends an empty line now and then. Raises ValueError, OSError."""
    stream = sock.makefile("rb")
    line = b""
    while not line:
        read = stream.readline(_LONGEST_LINE)
        if not read.endswith(b"\n"):
            raise ValueError("it hung up")
        line = read.strip()
    if not line.startswith(b"$"):
        raise ValueError(line.decode(errors="replace"))
    if not line.startswith(b"$EOF:"):
        left = int(line[1:])
        while left:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise ValueError("it hung up")
            file.write(piece)
            left -= len(piece)
        return
    mark = line[5:]
    tail = b""
    while not tail.endswith(mark):
        piece = stream.read1(_PIECE)
        if not piece:
            raise ValueError("it hung up")
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
    """Return a client for `redis://`, `rediss://` or `unix://`, once the server has answered."""
    client = Client(url, patience)
    try:
        client.command("PING")
    except BaseException:
        client.close()
        raise
    return client


class Tries:
    """The tries of one command. A retry is safe, because every change is a script with the same
    effect if it runs twice."""

    def __init__(self, patience: Patience) -> None:
        self._silences = patience.silences
        self._pauses = iter(patience.pauses_s)

    def pause_s(self, error: Exception) -> float:
        """Return the pause before the next try, after a try that had no connection, lost it, or got
        no answer in time. Raises `error` if there should be no further try."""
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
    """Return the options of a connection pool. If all connections are in use, callers wait for one,
    which does not count as an outage; a connection is free again when its command has an answer, or
    after `patience`. The library's own retries are off, because those of a connection nest within
    those of a command."""
    return {
        "timeout": None,
        "decode_responses": True,
        "protocol": 2,
        "socket_timeout": patience.answer_s,
        "socket_connect_timeout": min(patience.answer_s, _CONNECT_S),
        "health_check_interval": 30,
    }


def address(arguments: Mapping[str, Any]) -> str:
    """Return the address of a server, from the arguments of its connections."""
    return str(arguments.get("path") or f"{arguments.get('host')}:{arguments.get('port')}")


def store_lacks_room(address: str) -> str:
    """Return a sentence on the lack of room on the embedded server's disk. It is "" if there is
    room, or if another server is at this address, whose disk cannot be seen from here. A Redis
    that syncs before it answers ends when its disk is full."""
    data = Path(address).parent / DATA
    if not address.startswith("/") or not data.is_dir():
        return ""
    return disk.lacks_room(data, ROOM_BYTES)


def digest(script: str) -> str:
    """Return the hash by which EVALSHA identifies a script."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def readable(url: str) -> Iterator[None]:
    """Return a context that raises ServiceError if the library refuses an address."""
    try:
        yield
    except ValueError as error:
        raise ServiceError(
            f"cannot read the Redis address {url!r}: {error}",
            hint="REDIS_URL=redis://HOST:6379",
        ) from None


@contextlib.contextmanager
def translated(address: str) -> Iterator[None]:
    """Return a context that turns redis errors into FarrierError."""
    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise ServiceError(f"Redis at {address} refuses the credentials: {error}") from error
    except redis.exceptions.TimeoutError as error:
        raise ServiceError(
            f"Redis at {address} does not answer: {error}",
            hint="ask again in a while; if it stays so, look at the process of Redis and its disk",
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
                hint=ROOM if why else "free disk or memory there; the farm goes on by itself then",
                is_answer=True,
            ) from error
        raise
