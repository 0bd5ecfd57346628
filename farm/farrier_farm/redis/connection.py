"""Commands and scripts that are retried, errors for a user: here and in `async_connection.py`, the
only places that talk to Redis."""

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

CONNECTIONS = 100  # at once; who finds none free waits for one
_CONNECT_S = 5.0
_PIECE = 1 << 20  # bytes of a snapshot that are copied at once
_LONGEST_LINE = 1024
DATA = "valkey"
"""The folder of the embedded server's data, beside its socket."""
ROOM_BYTES = 4 << 20
"""The room that this server has to have: for thousands of commands, or one of the longest."""
ROOM = "free some space there: the farm goes on by itself then"

_DURABLE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class Client:
    """Text in, text out; safe to share between threads, of which `connections` ask at once. Every
    method raises ServiceError where Redis is out of reach, StoreFullError where it cannot write."""

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
        """One command; the answer is as Python's redis shapes it."""
        check_request()
        with self._breaker.guard(), translated(self.address):
            return self._tried(lambda: self._sent(words))

    def _sent(self, words: Sequence[str | int]) -> Any:
        return self._redis.execute_command(*words)  # type: ignore[no-untyped-call]

    def commands(self, each: Iterable[Sequence[str | int]]) -> list[Any]:
        """Commands in one round trip, and the answers of all."""
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
        """The options of the server with which it may forget what it acknowledged; none where it
        does not tell."""
        try:
            found = {option: self.command("CONFIG", "GET", option) for option in _DURABLE}
        except redis.exceptions.ResponseError:  # a managed server that hides its configuration
            return []
        return [
            f"{option} is {words[1]}, not {_DURABLE[option]}"
            for option, words in found.items()
            if words and words[1] != _DURABLE[option]
        ]

    def script(self, text: str) -> Script:
        """A Lua script that runs as one atomic change."""
        return Script(self, text)

    def shutdown(self) -> None:
        """Stop the server, after a last flush of its append-only file."""
        with contextlib.suppress(ServiceError):  # it hangs up instead of answering
            self.command("SHUTDOWN", "NOSAVE")

    def snapshot(self, file: IO[bytes]) -> None:
        """Write what the server holds, as of one moment, in its own format (RDB): what it sends to
        a replica. It goes on meanwhile."""
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
        except redis.exceptions.NoScriptError:  # the first call, or the server was restarted
            return self._client.command("EVAL", self._text, len(keys), *keys, *args)


def connect(url: str, patience: Patience = PATIENT) -> Client:
    """A client for `redis://`, `rediss://` or `unix://` that has got an answer."""
    client = Client(url, patience)
    try:
        client.command("PING")
    except BaseException:
        client.close()
        raise
    return client


class Tries:
    """The tries of one command. To try again is safe: every change goes through a script that
    answers the same when it runs twice."""

    def __init__(self, patience: Patience) -> None:
        self._silences = patience.silences
        self._pauses = iter(patience.pauses_s)

    def pause_s(self, error: Exception) -> float:
        """How long to wait before the next try, after one that found no connection, lost it, or had
        no answer in time. Raises `error` where there is to be no other."""
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
    """Of a pool of connections. It is full where all are in use: then it has callers wait for one,
    and that is no outage. Each is free again once its command has an answer, or none for as long as
    `patience` has it. (The library would retry as well; its retries nest, a connection's within a
    command's, so they are off.)"""
    return {
        "timeout": None,
        "decode_responses": True,
        "protocol": 2,
        "socket_timeout": patience.answer_s,
        "socket_connect_timeout": min(patience.answer_s, _CONNECT_S),
        "health_check_interval": 30,
    }


def address(arguments: Mapping[str, Any]) -> str:
    """Of a server, by the arguments of its connections."""
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
    """What EVALSHA knows a script by."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def readable(url: str) -> Iterator[None]:
    """Raises ServiceError where the library refuses an address."""
    try:
        yield
    except ValueError as error:
        raise ServiceError(
            f"cannot read the Redis address {url!r}: {error}",
            hint="REDIS_URL=redis://HOST:6379",
        ) from None


@contextlib.contextmanager
def translated(address: str) -> Iterator[None]:
    """Turn what redis raises into FarrierError."""
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
