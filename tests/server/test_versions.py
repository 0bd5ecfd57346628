"""Tests of agents of older and newer protocols: they work, or get a message about the update."""

from __future__ import annotations

import secrets

import grpc
import pytest

from farrier_device.describe import describe
from farrier_device.protocol import device_pb2
from farrier_device.protocol.version import PROTOCOL
from farrier_server.broker import versions


def _register(stub, **fields: int):
    here = describe()
    description = device_pb2.Description(
        arch=here.arch, cpu=here.cpu, features=here.features, cores=2, agent_version="9.1"
    )
    return stub.Register(
        device_pb2.RegisterRequest(
            device_id="board", instance=secrets.token_hex(4), description=description, **fields
        )
    )


@pytest.mark.parametrize(
    "fields",
    [{}, {"protocol": PROTOCOL, "oldest_protocol": 1}, {"protocol": 99, "oldest_protocol": 1}],
    ids=["older", "same", "newer"],
)
def test_unlike_versions_work_together(broker, fields) -> None:
    reply = _register(broker.stub(), **fields)
    assert reply.session
    assert reply.protocol == PROTOCOL


def _refused(stub, **fields: int) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        _register(stub, **fields)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    return str(caught.value.details())


def test_an_agent_that_needs_a_newer_farm_is_told(broker) -> None:
    said = _refused(broker.stub(), protocol=99, oldest_protocol=PROTOCOL + 1)
    assert f"board (9.1) needs version {PROTOCOL + 1} of the protocol" in said
    assert "update the farm's server" in said


def test_an_agent_that_is_too_old_is_told(broker, monkeypatch) -> None:
    monkeypatch.setattr(versions, "OLDEST", 2)
    said = _refused(broker.stub())
    assert "uses version 1 of the protocol; this farm needs version 2 or newer" in said
    assert "update farrier-device on that machine" in said
    assert _register(broker.stub(), protocol=2).session
