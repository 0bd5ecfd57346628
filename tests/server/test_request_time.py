"""A request that never ends, for a reason of its own, is given up by its thread."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest

from farrier.errors import ServiceError
from farrier_farm.devices.devices import Devices
from farrier_farm.redis.retry import check_request, request_time


def test_a_route_that_asks_redis_for_ever_ends_with_503(
    farm_settings, start_service, monkeypatch
) -> None:
    service = start_service(dataclasses.replace(farm_settings, request_s=0.5))
    ended = threading.Event()

    def endless(_self: Devices, *_arguments: object, **_options: object) -> None:
        try:
            while True:
                service.server.farm.client.command("PING")
        finally:
            ended.set()

    monkeypatch.setattr(Devices, "get", endless)
    answer = service.http().get("/v1/devices/board")
    assert answer.status_code == 503
    assert "within its time limit of 0.5 s" in answer.json()["detail"]
    assert "FARRIER_REQUEST_S" in answer.json()["hint"]
    assert ended.is_set()
    assert service.http().get("/v1/jobs").status_code == 200


def test_progress_renews_the_time_and_nothing_is_bounded_outside() -> None:
    with request_time(0.2) as time_left:
        for _ in range(4):
            time.sleep(0.1)
            time_left.renew()
            check_request()
        time.sleep(0.25)
        with pytest.raises(ServiceError):
            check_request()
    check_request()
