"""GET /v1/overview: everybody's answer, made once a second."""

from __future__ import annotations

import asyncio
import time

import pytest

from farrier.errors import ServiceError
from farrier.options import CompileOptions
from farrier_server.shared import FRESH_S, Shared
from tests.here import TARGET


def test_an_overview_says_what_there_is(service):
    farm = service.farm
    model = farm.blobs.put(b"model")
    for name in ("one", "two"):
        farm.jobs.submit(model, CompileOptions(target=TARGET, verify=False), name=name)
    lease = farm.jobs.lease("w", 1)
    farm.jobs.succeed(lease, farm.blobs.put(b"artifact"), {"latency_ms": 1.5})
    running = farm.jobs.lease("w", 1)
    farm.news.warn("worker", "it is slow")
    shown = service.http().get("/v1/overview").json()
    assert shown["jobs"] == {
        "queued": 0,
        "running": 1,
        "succeeded": 1,
        "failed": 0,
        "cancelled": 0,
        "dead": 0,
    }
    assert [job["id"] for job in shown["running"]] == [running.item]
    assert [job["report"] for job in shown["finished"]] == [{"latency_ms": 1.5}]
    assert shown["devices"] == {"connected": 0, "busy": 0, "quarantined": 0, "emulated": 0}
    assert shown["throughput"][-1].keys() == {"time", "trials", "batches", "finished"}
    assert sum(minute["finished"] for minute in shown["throughput"]) == 1
    assert shown["records"] == {"count": 0}
    assert shown["broker"] == {"port": farm.settings.broker_port, "tls": False}
    (warning,) = shown["news"]
    assert [warning[name] for name in ("kind", "role", "message")] == [
        *("warning", "worker", "it is slow")
    ]
    assert abs(shown["time"] - time.time()) < 60


def test_many_who_ask_at_once_have_one_answer_made():
    calls = []

    def make() -> bytes:
        calls.append(time.monotonic())
        time.sleep(0.05)
        return b"%d" % len(calls)

    async def ask() -> None:
        shared = Shared()
        assert set(await asyncio.gather(*(shared.get("a", make) for _ in range(50)))) == {b"1"}
        assert await shared.get("a", make) == b"1"
        assert await shared.get("b", make) == b"2"
        await asyncio.sleep(FRESH_S)
        assert await shared.get("a", make) == b"3"

    asyncio.run(ask())


def test_an_answer_that_could_not_be_made_is_made_anew():
    answers = [ServiceError("Redis is away"), b"well"]

    def make() -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask() -> None:
        shared = Shared()
        with pytest.raises(ServiceError):
            await shared.get("a", make)
        assert await shared.get("a", make) == b"well"

    asyncio.run(ask())
