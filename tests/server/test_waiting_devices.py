"""Many devices that wait at one broker: they cost it neither threads nor connections."""

from __future__ import annotations

import asyncio
import threading

import grpc

from farrier_device.protocol import device_pb2
from farrier_farm.leases.async_leases import AsyncLeases
from farrier_farm.measurements.async_batches import Batches
from farrier_server.broker.dispatcher import Dispatcher
from tests.here import HERE
from tests.server.test_broker import REQUEST, beat, lease, refusal, report
from tests.waiting import wait_until

DEVICES = 150  # More than the 100 connections of a pool.


def _wait(stub, session) -> grpc.Future:
    request = device_pb2.LeaseRequest(session=session, wait_ms=25_000)
    return stub.stub.Lease.future(request, metadata=stub.metadata, timeout=120)


def test_no_heartbeat_fails_while_many_devices_wait(broker) -> None:
    stub = broker.stub()
    sessions = [stub.register(f"d{n}") for n in range(DEVICES)]
    before = threading.active_count()
    waits = [_wait(stub, session) for session in sessions]
    for session in sessions:
        assert beat(stub, session) == []
    assert threading.active_count() < before + 50  # none a device
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    wait_until(lambda: any(wait.done() for wait in waits))
    broker.stop()
    assert [w.result().batch.lease for w in waits if w.result().HasField("batch")] == [batch_id]


def test_a_batch_wakes_one_device(broker, monkeypatch) -> None:
    takes: list[str] = []
    take = AsyncLeases.take

    async def counted(leases, owner, queues):
        takes.append(owner)
        return await take(leases, owner, queues)

    stub = broker.stub()
    sessions = [stub.register(f"d{n}") for n in range(30)]
    waits = [_wait(stub, session) for session in sessions]
    for session in sessions:
        beat(stub, session)
    assert lease(stub, stub.register("last"), 0) is None  # All others have looked by now.
    monkeypatch.setattr(AsyncLeases, "take", counted)
    for n in range(3):
        broker.farm.measurements.submit(REQUEST, HERE)
        wait_until(lambda n=n: sum(wait.done() for wait in waits) > n)
    assert len(takes) < 10  # 3, and what a sweep finds meanwhile


def test_a_device_that_leaves_while_it_leases_leaves_nothing_behind(broker, monkeypatch) -> None:
    """The batch goes to the next at once, though the lease was granted."""
    granted, go_on = threading.Event(), threading.Event()
    take = Batches.take

    async def slow(batches, device, session, queues):
        batch = await take(batches, device, session, queues)
        if device == "gone" and batch is not None:
            granted.set()
            await asyncio.to_thread(go_on.wait, 60)
        return batch

    monkeypatch.setattr(Batches, "take", slow)
    hand_back = Dispatcher._hand_back

    async def noticed(dispatcher, taking):
        go_on.set()
        await hand_back(dispatcher, taking)

    monkeypatch.setattr(Dispatcher, "_hand_back", noticed)
    stub = broker.stub()
    gone, there = stub.register("gone"), stub.register("there")
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    wait = _wait(stub, gone)
    assert granted.wait(60)
    other = _wait(stub, there)
    wait.cancel()
    batch = other.result().batch
    assert batch.lease == batch_id
    assert broker.farm.measurements.leases.fields(batch_id)["crashes"] == "0"
    assert broker.farm.devices.get("gone").lease is None
    assert report(stub, there, batch) == device_pb2.ACCEPTANCE_ACCEPTED


def test_what_drains_is_not_woken(broker) -> None:
    stub = broker.stub()
    leaving, staying = stub.register("leaving"), stub.register("staying")
    first, second = _wait(stub, leaving), _wait(stub, staying)
    beat(stub, staying)
    beat(stub, leaving, state=device_pb2.DEVICE_STATE_DRAINING)
    batch_id = broker.farm.measurements.submit(REQUEST, HERE)
    assert second.result().batch.lease == batch_id
    beat(stub, leaving)  # It takes work again.
    following = broker.farm.measurements.submit(REQUEST, HERE)
    assert first.result().batch.lease == following


def test_what_an_older_broker_registered_registers_again(broker) -> None:
    """It has no class, so nothing is for it."""
    stub = broker.stub()
    session = stub.register("board", "instance")
    broker.farm.client.command("HDEL", "farrier:device:board", "class")
    with refusal(grpc.StatusCode.NOT_FOUND):
        beat(stub, session)
    assert stub.register("board", "instance") == session
    assert beat(stub, session) == []
