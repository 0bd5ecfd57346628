"""The only place that talks to Redis: commands and scripts that are retried, errors for a user."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import redis
import redis.backoff
import redis.exceptions
import redis.retry

from farrier.errors import ServiceError, StorageError
from farrier_farm.patience import PATIENT, Breaker, Patience

_CONNECT_S = 5.0

_DURABLE = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}


class Client:
    """Text in, text out; safe to share between threads. Every method raises ServiceError where
    Redis is out of reach, StorageError where it cannot write."""

    def __init__(self, url: str, patience: Patience = PATIENT) -> None:
        self.url = url
        self._patience = patience
        self._breaker = Breaker()
        try:
            self._redis = redis.Redis.from_url(
                url,
                decode_responses=True,
                protocol=2,
                socket_timeout=patience.answer_s,
                socket_connect_timeout=min(patience.answer_s, _CONNECT_S),
                health_check_interval=30,
                # Those of the library nest: a connection's within a command's.
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            )
        except ValueError as error:
            raise ServiceError(
                f"cannot read the Redis address {url!r}: {error}",
                hint="REDIS_URL=redis://HOST:6379",
            ) from None

    @property
    def address(self) -> str:
        arguments = self._redis.connection_pool.connection_kwargs
        return str(arguments.get("path") or f"{arguments.get('host')}:{arguments.get('port')}")

    def command(self, *words: str | int) -> Any:
        """One command; the answer is as Python's redis shapes it."""
        with self._breaker.guard(), _translated(self.address):
            return self._tried(words)

    def _tried(self, words: tuple[str | int, ...]) -> Any:
        """Trying again is safe: every change goes through a script that answers the same when it
        runs twice."""
        silences, pauses = 0, iter(self._patience.pauses_s)
        while True:
            try:
                return self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
            except redis.exceptions.AuthenticationError:
                raise
            except redis.exceptions.TimeoutError:
                silences += 1
                if silences == self._patience.silences:
                    raise
            except redis.exceptions.ConnectionError:
                pause = next(pauses, None)
                if pause is None:
                    raise
                time.sleep(pause)

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
        """Stops the server, after a last flush of its append-only file."""
        with contextlib.suppress(ServiceError):  # it hangs up instead of answering
            self.command("SHUTDOWN", "NOSAVE")

    def close(self) -> None:
        self._redis.close()


class Script:
    def __init__(self, client: Client, text: str) -> None:
        self._client = client
        self._text = text
        self._sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

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


@contextlib.contextmanager
def _translated(address: str) -> Iterator[None]:
    """Turns what redis raises into FarrierError."""
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
        raise ServiceError(
            f"Redis at {address} does not answer: {error}",
            hint="start `farrier serve`, or set REDIS_URL to the Redis of the farm",
        ) from error
    except redis.exceptions.ResponseError as error:
        full = isinstance(error, redis.exceptions.OutOfMemoryError)  # "OOM" is not in its text
        if full or any(word in str(error) for word in ("MISCONF", "OOM ", "No space left")):
            raise StorageError(
                f"Redis at {address} cannot store: {error}", hint="free disk or memory there"
            ) from error
        raise
