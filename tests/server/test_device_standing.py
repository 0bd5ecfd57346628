"""Tests of operators' commands for devices: over REST, and their effect on the devices."""

from __future__ import annotations

import dataclasses
import time

import grpc
import pytest

from farrier.errors import ConflictError, ForbiddenError, NotFoundError, UsageError
from farrier.sdk.client import Client
from farrier_device.protocol import device_pb2
from farrier_farm.access.users import Role, Users
from tests.here import CLASS, HERE
from tests.server.test_broker import REQUEST, beat, lease, refusal, report


@pytest.fixture
def farm_and_client(service, start_broker):
    """A broker of the service's farm, and the SDK as an operator."""
    broker = start_broker(service.settings)
    token = Users(service.settings.home).add("olga", Role.OPERATOR)
    with Client(service.url, token) as client:
        yield broker, client


def test_a_token_of_the_service_enrols_a_device_once(farm_and_client):
    broker, client = farm_and_client
    invitation = client.add_device("pi", expires_s=60)
    request = device_pb2.EnrolRequest(nonce=b"n" * 32)
    reply = broker.stub(caller=f"Enrol {invitation.token}").Enrol(request)
    assert reply.device_id == "pi"
    with pytest.raises(ConflictError, match="already enrolled"):
        client.add_device("pi")
    assert client.add_device("pi", again=True).token != invitation.token
    for name, expires_s in (("", 60), ("no name", 60), ("a" * 101, 60), ("pi2", 0), ("pi2", 1e9)):
        with pytest.raises(UsageError):
            client.add_device(name, expires_s=expires_s)


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("drain", "drained")])
def test_a_device_ends_its_batch_and_gets_no_other(farm_and_client, verb, state):
    broker, client = farm_and_client
    stub = broker.stub()
    session = stub.register("board", "instance")
    broker.farm.measurements.submit(REQUEST, HERE)
    batch = lease(stub, session)
    assert client.set_standing("board", verb).standing == state
    assert client.device("board").state == ("paused" if verb == "pause" else "draining")
    assert beat(stub, session, batch.lease) == []
    assert report(stub, session, batch) == device_pb2.ACCEPTANCE_ACCEPTED
    assert client.device("board").state == state
    broker.farm.measurements.submit(REQUEST, HERE)
    assert lease(stub, session, 0.3) is None
    stub.register("board", "instance")
    assert client.device("board").state == state
    session = stub.register("board")  # Its agent starts again.
    if verb == "pause":
        assert lease(stub, session, 0.3) is None
        client.set_standing("board", "resume")
    assert lease(stub, session) is not None


def test_a_device_that_is_dead_is_forgotten(farm_and_client):
    broker, client = farm_and_client
    stub = broker.stub()
    stub.register("board")
    with pytest.raises(ConflictError, match="connected") as raised:
        client.remove_device("board")
    assert "farrier devices revoke board" in raised.value.hint
    client.set_standing("board", "revoke")
    with pytest.raises(ConflictError, match="revoked"):
        client.set_standing("board", "resume")
    client.tag_device("board", ["rack=7"])
    client.remove_device("board")
    assert client.devices() == []
    for key in broker.farm.client.command("KEYS", "farrier:*"):
        kind = broker.farm.client.command("TYPE", key)
        command = {"zset": ("ZRANGE", key, 0, -1), "set": ("SMEMBERS", key)}.get(kind)
        assert not key.endswith(":board")
        assert command is None or "board" not in broker.farm.client.command(*command), key
    for act in (
        lambda: client.device("board"),
        lambda: client.remove_device("board"),
        lambda: client.set_standing("board", "pause"),
        lambda: client.tag_device("board", []),
        lambda: list(client.device_history("board")),
    ):
        with pytest.raises(NotFoundError):
            act()
    stub.register("board")  # The name is free again.
    assert broker.farm.devices.serving(CLASS.id) == 1


def test_a_device_that_was_silent_for_long_is_removed(service, start_broker):
    broker = start_broker(dataclasses.replace(service.settings, device_expiry_s=0.001))
    broker.stub().register("dead")
    time.sleep(0.01)  # Ten times the expiry, of which the farm sees whole milliseconds.
    broker.farm.enrolments.remove("dead")
    assert broker.farm.devices.list() == []


def test_tags_select_devices(farm_and_client):
    broker, client = farm_and_client
    for name in ("a", "b", "c"):
        broker.stub().register(name)
    assert client.tag_device("a", ["rack=7", "lab", "lab"]).tags == ("lab", "rack=7")
    client.tag_device("b", ["lab"])
    assert [device.id for device in client.devices(tag="lab")] == ["a", "b"]
    assert [device.id for device in client.devices(tag="rack=7")] == ["a"]
    assert client.devices(tag="la") == []
    client.tag_device("a", [])
    assert client.device("a").tags == ()
    for tags in (["two words"], ["x" * 51], [""], [f"t{n}" for n in range(21)]):
        with pytest.raises(UsageError):
            client.tag_device("a", tags)


def test_users_have_no_say_in_devices(service, start_broker):
    broker = start_broker(service.settings)
    stub = broker.stub()
    session = stub.register("board")
    with Client(service.url, Users(service.settings.home).add("ann", Role.USER)) as client:
        for act in (
            lambda: client.add_device("pi"),
            lambda: client.remove_device("board"),
            lambda: client.set_standing("board", "revoke"),
            lambda: client.set_standing("board", "pause"),
            lambda: client.tag_device("board", ["lab"]),
        ):
            with pytest.raises(ForbiddenError):
                act()
    assert beat(stub, session) == []


def test_a_session_that_was_revoked_leaves_no_trace_of_a_device(farm_and_client):
    broker, client = farm_and_client
    stub = broker.stub()
    session = stub.register("board")
    client.set_standing("board", "revoke")
    client.remove_device("board")
    for call in (lambda: beat(stub, session), lambda: lease(stub, session, 0.1)):
        with refusal(grpc.StatusCode.NOT_FOUND):
            call()
    assert client.devices() == []
