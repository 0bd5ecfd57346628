"""Tests of the reports about a device: its state, and its history."""

from __future__ import annotations

import dataclasses
import time

import pytest

from farrier_device.measurement import (
    Argument,
    Candidate,
    CandidateResult,
    CodeObject,
    DeviceFault,
    Launch,
    MeasureRequest,
    MeasureResult,
    Role,
    Status,
    to_json,
)
from farrier_device.protocol import device_pb2
from farrier_farm.devices.classes import MeasurementTarget
from tests.waiting import wait_until


@pytest.fixture
def device_expiry_s() -> float:
    """Until a device that is silent is lost. The devices of most tests never beat."""
    return 120.0


@pytest.fixture
def farm(farm_settings, start_broker, start_service, device_expiry_s):
    """A broker and a server."""
    settings = dataclasses.replace(
        farm_settings, device_expiry_s=device_expiry_s, quarantine_faults=2
    )
    service = start_service(settings)
    return service, start_broker(settings)


def history(http, device: str, **query) -> list[dict]:
    return http.get(f"/v1/devices/{device}/history", params=query).json()["history"]


def whats(events) -> list[str]:
    return [event["what"] for event in events]


def measure(service, stub, session, result: MeasureResult) -> str:
    """One batch, from its queue to its result."""
    argument = Argument(Role.OUTPUT, 4)
    library = service.farm.blobs.put(b"library")
    request = MeasureRequest((CodeObject(library),), (Candidate((Launch("one"),), (argument,)),))
    device = service.farm.devices.get(session.device_id)
    batch = service.farm.measurements.submit(
        request, MeasurementTarget(device.device_class, device.id)
    )
    reply = stub.Lease(device_pb2.LeaseRequest(session=session, wait_ms=20_000))
    assert reply.batch.lease == batch
    stub.Report(
        device_pb2.ReportRequest(
            session=session, lease=batch, fence=reply.batch.fence, result=to_json(result).encode()
        )
    )
    service.farm.measurements.cancel(batch)
    return batch


def test_a_device_s_history(farm):
    service, broker = farm
    http, stub = service.http(), broker.stub()
    session = stub.register("rack1")
    ok = MeasureResult(results=(CandidateResult(Status.OK, (5, 6)),))
    batch = measure(service, stub, session, ok)
    drifted = MeasureResult(fault=DeviceFault.DRIFTED, message="30% slower")
    for _ in range(2):
        time.sleep(max(0.0, 0.0 if whats(history(http, "rack1"))[0] != "faulted" else 1.1))
        last = measure(service, stub, session, drifted)
    reported = history(http, "rack1", order="oldest")
    assert whats(reported) == [
        *("connected", "leased", "measured"),
        *("leased", "faulted", "leased", "faulted", "quarantined"),
    ]
    connected, leased, measured, *_, faulted, quarantined = reported
    assert connected["device_class"] == http.get("/v1/devices/rack1").json()["device_class"]
    assert leased["batch"] == measured["batch"] == batch
    assert 0 <= measured["seconds"] < 60
    assert (faulted["batch"], faulted["in_a_row"]) == (last, 2)
    assert faulted["reason"] == quarantined["reason"] == "drifted: 30% slower"
    assert [entry["at"] for entry in reported] == sorted(entry["at"] for entry in reported)
    newest = http.get("/v1/devices/rack1/history", params={"limit": 3}).json()
    assert whats(newest["history"]) == ["quarantined", "faulted", "leased"]
    rest = history(http, "rack1", after=newest["next"])
    assert newest["history"] + rest == reported[::-1]
    http.post("/v1/devices/rack1/release")
    assert whats(history(http, "rack1"))[0] == "released"
    # Batches are too many for the farm's watchers.
    events = service.farm.events.follow({"": "0-0"}, 0.0)[""]
    announced = [event.data["what"] for event in events if event.data["kind"] == "device"]
    assert announced == ["connected", "faulted", "faulted", "quarantined", "released"]
    with service.client() as client:
        assert [entry.what for entry in client.device_history("rack1")][-1] == "connected"


@pytest.mark.parametrize("device_expiry_s", [1.0])
def test_a_device_that_falls_silent_is_lost_and_one_that_beats_again_is_back(farm):
    service, broker = farm
    http, stub = service.http(), broker.stub()
    session = stub.register("rack1")
    wait_until(lambda: whats(history(http, "rack1"))[0] == "lost", "nobody noticed")
    assert service.farm.devices.beating() == 0
    stub.Heartbeat(device_pb2.HeartbeatRequest(session=session, state=1))
    assert whats(history(http, "rack1")) == ["back", "lost", "connected"]
    assert service.farm.devices.beating() == 1


@pytest.mark.parametrize("device_expiry_s", [1.0])
def test_nobody_is_lost_for_what_nobody_could_see(farm):
    """After a time without a broker, or without Redis, each device has its full time again."""
    service, broker = farm
    broker.stub().register("rack1")
    broker.stop()
    time.sleep(1.2)
    service.farm.client.command("HINCRBY", "farrier:looked", "last", -60_000)
    service.farm.devices._call("look", "")
    assert whats(history(service.http(), "rack1")) == ["connected"]


def test_devices_come_page_by_page(farm):
    service, broker = farm
    http, stub = service.http(), broker.stub()
    names = sorted(["b", "a", "a:1", "Z9", "c-3"])
    for name in names:
        stub.register(name)
    service.farm.client.command("DEL", "farrier:devices")  # An older version leaves it like this.
    first = http.get("/v1/devices", params={"limit": 3}).json()
    assert [device["id"] for device in first["devices"]] == names[:3]
    rest = http.get("/v1/devices", params={"after": first["next"]}).json()
    assert [device["id"] for device in rest["devices"]] == names[3:]
    assert rest["next"] == ""
    assert http.get("/v1/devices/nobody").status_code == 404
    assert http.get("/v1/devices/nobody/history").status_code == 404
