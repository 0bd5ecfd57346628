"""Tests of a full pool of connections: callers wait, and it does not count as an outage."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import redis.exceptions

from farrier_farm.redis.async_connection import AsyncClient
from farrier_farm.redis.connection import Client
from farrier_farm.redis.retry import Patience

_WAIT = ("XREAD", "BLOCK", 100, "STREAMS", "farrier:nothing", "$")
_IMPATIENT = Patience(answer_s=10.0, silences=1, pauses_s=())


def test_tasks_wait_for_a_connection(installation) -> None:
    async def ask() -> list[object]:
        client = AsyncClient(installation.redis_url, _IMPATIENT, connections=2)
        waits = [client.command(*_WAIT) for _ in range(6)]
        answers = await asyncio.gather(*waits, *(client.command("PING") for _ in range(20)))
        await client.close()
        return list(answers)

    assert asyncio.run(ask())[-20:] == [True] * 20


def test_a_task_that_is_called_off_frees_its_connection(installation) -> None:
    async def ask() -> object:
        client = AsyncClient(installation.redis_url, _IMPATIENT, connections=1)
        waiting = asyncio.create_task(client.command("BLPOP", "farrier:nothing", 0))
        await asyncio.sleep(0.05)
        waiting.cancel()
        answer = await client.command("PING")
        await client.close()
        return answer

    assert asyncio.run(ask()) is True


def test_threads_wait_for_a_connection(installation) -> None:
    client = Client(installation.redis_url, _IMPATIENT, connections=1)
    answers: list[object] = []
    threads = [threading.Thread(target=client.command, args=_WAIT) for _ in range(4)]
    threads += [
        threading.Thread(target=lambda: answers.append(client.command("PING"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 8
    client.close()


def test_what_tries_again_after_errors_ends_when_it_is_cancelled(installation):
    """At whatever moment of a command that fails."""

    async def keeps_trying(client: AsyncClient) -> None:
        while True:
            with contextlib.suppress(redis.exceptions.NoScriptError):
                await client.command("EVALSHA", "0" * 40, 0)

    async def cancelled_after(client: AsyncClient, turns: int) -> None:
        task = asyncio.create_task(keeps_trying(client))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5.0)
        assert done, f"it goes on, cancelled after {turns} turns of the loop"

    async def scenario() -> None:
        client = AsyncClient(installation.redis_url, _IMPATIENT, connections=1)
        for turns in range(200):
            await cancelled_after(client, turns)
        await client.close()

    asyncio.run(scenario())
