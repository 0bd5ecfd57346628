"""Definitions of tasks in Redis: once each, the newest counts, bounded."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from farrier.errors import StorageError
from farrier.records import TaskDefinition
from farrier_farm.farm import Farm
from farrier_farm.records import definitions as definitions_module
from farrier_farm.records.definitions import Definitions


def _one(number: int, program: str = "kernel f():") -> TaskDefinition:
    return TaskDefinition(f"t{number}", "host", 2, program, '{"cpu":"znver5"}')


def _all(farm: Farm) -> set[TaskDefinition]:
    return set(farm.definitions.newest(10_000))


def test_what_is_defined_twice_is_kept_once(farm: Farm) -> None:
    farm.definitions.define([_one(1), _one(2)])
    farm.definitions.define([_one(2), _one(2)])
    assert farm.definitions.count() == 2
    assert _all(farm) == {_one(1), _one(2)}


def test_the_newest_of_a_task_counts(farm: Farm) -> None:
    by_four = dataclasses.replace(_one(1), threads=4)
    farm.definitions.define([_one(1, "old 'ü'"), by_four])
    farm.definitions.define([_one(1, "new")])
    assert _all(farm) == {_one(1, "new"), by_four}


def test_those_defined_last_come_first(farm: Farm, monkeypatch) -> None:
    monkeypatch.setattr(definitions_module, "_PAGE", 2)
    for number in (1, 2, 3, 4, 5, 1):
        farm.definitions.define([_one(number)])
        now = farm.client.command("TIME")
        while farm.client.command("TIME")[1] // 1000 == now[1] // 1000:
            pass  # The order is by milliseconds.
    assert [definition.task for definition in farm.definitions.newest(3)] == ["t1", "t5", "t4"]


def test_beyond_a_number_the_oldest_go(farm: Farm) -> None:
    few = Definitions(farm.client, most=3)
    for number in range(10):
        few.define([_one(number)])
    assert few.count() == farm.client.command("HLEN", "farrier:definitions:texts") == 3
    few.define([_one(20 + number) for number in range(10)])
    assert few.count() == farm.client.command("HLEN", "farrier:definitions:texts") == 3


def test_what_cannot_be_read_is_left_out(farm: Farm) -> None:
    farm.definitions.define([_one(1)])
    for number, text in enumerate(("", "AAAA", "no base64", definitions_module._packed("{}"))):
        farm.client.command("HSET", "farrier:definitions:texts", f"d{number}", text)
        farm.client.command("ZADD", "farrier:definitions:order", 1, f"d{number}")
    assert _all(farm) == {_one(1)}


def test_several_at_once_lose_nothing(farm: Farm) -> None:
    def define(worker: int) -> None:
        for number in range(20):
            farm.definitions.define([_one(number), _one(100 * worker + number)])

    threads = [threading.Thread(target=define, args=(worker,)) for worker in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {_one(100 * worker + number) for worker in range(5) for number in range(20)}
    assert _all(farm) == expected


def test_a_full_server_is_a_storage_error(farm: Farm) -> None:
    farm.client.command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StorageError):
            farm.definitions.define([_one(1)])
    finally:
        farm.client.command("CONFIG", "SET", "maxmemory", "0")
    farm.definitions.define([_one(1)])
    assert _all(farm) == {_one(1)}
