"""The Redis client for an event loop, on which no thread waits for an answer. The client for
threads is in `connection.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.exceptions

from farrier_farm.redis.connection import Tries, address, digest, options, readable, translated
from farrier_farm.redis.retry import PATIENT, Breaker, Patience

CONNECTIONS = 32  # The most connections; a caller that finds none free waits.


class AsyncClient:
    """A Redis client for the tasks of one event loop. Its errors are the same as those of
    `connection.Client`."""

    def __init__(
        self, url: str, patience: Patience = PATIENT, connections: int = CONNECTIONS
    ) -> None:
        self._patience = patience
        self._breaker = Breaker()
        with readable(url):
            pool = redis.asyncio.BlockingConnectionPool.from_url(
                url,
                max_connections=connections,
                retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0),
                **options(patience),
            )
        self._redis = redis.asyncio.Redis.from_pool(pool)
        self._address = address(pool.connection_kwargs)

    async def command(self, *words: str | int) -> Any:
        """Send a command and return its answer as Python's redis library does."""
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            with self._breaker.guard(), translated(self._address):
                return await self._tried(words)
        finally:
            # In Python 3.11 `wait_for`, which the library uses to send, forgets a cancellation that
            # arrives as it ends: a caller that has left would get a batch, and a caller that
            # retries after errors would never end.
            if task and task.cancelling() > before:
                raise asyncio.CancelledError

    async def _tried(self, words: tuple[str | int, ...]) -> Any:
        tries = Tries(self._patience)
        while True:
            try:
                return await self._redis.execute_command(*words)  # type: ignore[no-untyped-call]
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
                pause_s = tries.pause_s(error)
            await asyncio.sleep(pause_s)

    def script(self, text: str) -> AsyncScript:
        """Return a Lua script that runs as one atomic change."""
        return AsyncScript(self, text)

    async def close(self) -> None:
        await self._redis.aclose()


class AsyncScript:
    def __init__(self, client: AsyncClient, text: str) -> None:
        self._client = client
        self._text = text
        self._sha1 = digest(text)

    async def __call__(self, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        try:
            return await self._client.command("EVALSHA", self._sha1, len(keys), *keys, *args)
        # This is the first call, or the server was restarted.
        except redis.exceptions.NoScriptError:
            return await self._client.command("EVAL", self._text, len(keys), *keys, *args)
