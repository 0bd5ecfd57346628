"""Tests of a full disk: it is reported as such, and the farm continues when there is room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from farrier.errors import ServiceError, StorageError
from farrier.options import CompileOptions
from farrier_farm.errors import StoreFullError
from farrier_farm.farm import Farm
from farrier_farm.redis import embedded
from farrier_farm.redis.async_connection import AsyncClient
from farrier_farm.redis.connection import connect
from farrier_farm.redis.retry import PROBE
from farrier_farm.settings import Settings
from farrier_worker.supervisor import Supervisor
from tests.here import TARGET
from tests.small_disk import SmallDisk, small_disk
from tests.waiting import wait_until

MODEL = "a" * 64


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk(24) as disk:
        yield disk


@pytest.fixture
def valkey(disk: SmallDisk) -> Iterator[embedded.Embedded]:
    valkey = embedded.start(Settings(home=disk.home, min_free_bytes=0))
    yield valkey
    disk.free()
    valkey.revive()
    valkey.stop()


def _full(valkey: embedded.Embedded) -> None:
    """Have it end as it does where it cannot write what it is to acknowledge."""
    with pytest.raises(ServiceError):
        connect(valkey.url, PROBE).command("SET", "key", "x" * (1 << 20))
    assert valkey._process is not None
    valkey._process.wait(20)


def test_valkey_whose_disk_is_full_is_told_as_that_and_goes_on_by_itself(disk, valkey) -> None:
    farm = Farm.open(Settings(home=disk.home, min_free_bytes=0), PROBE)
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    disk.fill()
    _full(valkey)
    words = f"0 bytes are free in {disk.home}/valkey"
    with pytest.raises(StoreFullError, match=words) as caught:
        farm.jobs.get(job.id)
    assert (caught.value.http_status, caught.value.exit_code) == (507, 9)
    assert "free some space there" in caught.value.hint

    async def ask() -> None:
        client = AsyncClient(valkey.url, PROBE)
        for _ in range(2):  # The second answer comes from the circuit breaker.
            with pytest.raises(StoreFullError, match=words):
                await client.command("PING")
        await client.close()

    asyncio.run(ask())
    for _ in range(2):  # The server is not started, as it would end at the first change.
        with pytest.raises(StorageError, match=words):
            valkey.revive()
    disk.free()
    assert valkey.revive()
    assert farm.jobs.get(job.id) == job
    farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    farm.close()


def test_a_start_on_a_full_disk_is_told_as_that(disk) -> None:
    _start_and_stop(disk)
    disk.fill()
    with pytest.raises(StorageError, match=str(disk.home)):
        embedded.start(Settings(home=disk.home))
    disk.free()
    _start_and_stop(disk)


def _start_and_stop(disk: SmallDisk) -> None:
    embedded.start(Settings(home=disk.home)).stop()


def test_the_server_answers_507_and_then_goes_on(disk, valkey, start_service) -> None:
    service = start_service(Settings(home=disk.home, min_free_bytes=0))
    http = service.http()
    assert http.get("/v1/jobs").status_code == 200
    disk.fill()
    _full(valkey)
    for _ in range(2):
        answer = http.get("/v1/jobs")
        assert (answer.status_code, answer.json()["code"]) == (507, "storage")
        assert f"bytes are free in {disk.home}/valkey" in answer.json()["detail"]
    disk.free()
    assert valkey.revive()
    wait_until(lambda: http.get("/v1/jobs").status_code == 200)


def test_a_redis_that_refuses_writes_answers_what_reads_and_costs_no_worker_its_life(
    installation,
) -> None:
    farm = Farm.open(installation.settings)
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    farm.client.command("CONFIG", "SET", "maxmemory", "1")
    supervisor = Supervisor(Farm.open(installation.settings), command=["true"])
    worker = threading.Thread(target=supervisor.run)
    worker.start()
    try:
        for _ in range(2):
            with pytest.raises(StoreFullError, match="cannot store"):
                farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
            assert farm.jobs.get(job.id) == job
        farm.client.command("CONFIG", "SET", "maxmemory", "0")
        wait_until(lambda: farm.jobs.get(job.id).state.final)
    finally:
        supervisor.drain()
        worker.join()
        supervisor._farm.close()
        farm.close()
