"""The registry: sessions fence, silence means offline, faults lead to quarantine, targets match."""

from __future__ import annotations

import dataclasses
import time

import pytest

from farrier.errors import NoDeviceError, UsageError
from farrier.targets import parse_target
from farrier_farm.devices import Devices, DeviceState, requirement, runs
from farrier_farm.errors import StaleSessionError
from farrier_farm.farm import Farm


def test_a_device_is_what_it_said(farm: Farm, connect_device) -> None:
    connect_device("pi", cpu="cortex-a72", board={"name": "Pi ü"})
    device = farm.devices.get("pi")
    assert device.state is DeviceState.IDLE
    assert device.description["cpu"] == "cortex-a72"
    assert device.description["board"] == {"name": "Pi ü"}
    assert (device.measured, device.faults, device.lease) == (0, 0, None)
    assert farm.devices.list() == [device]


def test_a_new_session_fences_out_the_old(farm: Farm, connect_device) -> None:
    _, old = connect_device("d")
    _, new = connect_device("d")
    for call in (
        lambda: farm.devices.heartbeat("d", old),
        lambda: farm.devices.hold("d", old, "batch"),
        lambda: farm.devices.settle("d", old, "batch", 1, fault=True),
    ):
        with pytest.raises(StaleSessionError, match="device d"):
            call()
    assert farm.devices.heartbeat("d", new).state is DeviceState.IDLE
    assert farm.devices.get("d").faults == 0


def test_an_instance_without_a_name_has_no_session_to_keep(farm: Farm) -> None:
    sessions = [farm.devices.connect("d", {}, instance) for instance in ("a", "a", "b", "", "")]
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 4


def test_a_session_must_have_been_opened(farm: Farm, connect_device) -> None:
    connect_device("d")
    for device in ("d", "unknown"):
        for stale in ("", "0" * 16):
            with pytest.raises(StaleSessionError):
                farm.devices.heartbeat(device, stale)


def test_silence_means_offline(farm: Farm, connect_device) -> None:
    _, session = connect_device("d")
    strict = Devices(farm.client, dataclasses.replace(farm.settings, device_expiry_s=0.1))
    time.sleep(0.15)
    assert strict.get("d").state is DeviceState.OFFLINE
    strict.heartbeat("d", session)
    assert strict.get("d").state is DeviceState.IDLE


def test_a_clock_that_was_put_back_keeps_no_device_alive_nor_at_rest(
    farm: Farm, connect_device
) -> None:
    _, session = connect_device("d")
    farm.devices.settle("d", session, "b", 1, fault=True)
    assert farm.devices.get("d").resting
    key, hour_ms = "farrier:device:d", 3_600_000
    for field in ("seen", "rest_until"):
        farm.client.command("HINCRBY", key, field, hour_ms)
    assert farm.devices.get("d").state is DeviceState.OFFLINE
    farm.devices.heartbeat("d", session)
    assert farm.devices.get("d").takes_work


def test_states_while_connected(farm: Farm, connect_device) -> None:
    _, session = connect_device("d")
    farm.devices.hold("d", session, "batch-1")
    assert farm.devices.get("d").state is DeviceState.BUSY
    assert farm.devices.get("d").lease == "batch-1"
    farm.devices.settle("d", session, "batch-1", 1, fault=False)
    device = farm.devices.heartbeat("d", session, draining=True)
    assert (device.state, device.measured, device.takes_work) == (DeviceState.DRAINING, 1, False)


def test_faults_in_a_row_lead_to_quarantine(farm: Farm, connect_device) -> None:
    _, session = connect_device("d")
    limit = farm.settings.quarantine_faults
    for fence in range(1, limit):
        farm.devices.settle("d", session, "a", fence, fault=True)
    farm.devices.settle("d", session, "a", limit, fault=False)  # starts the row anew
    for count in range(1, limit + 1):
        assert farm.devices.get("d").state is DeviceState.IDLE
        for _ in range(2):  # told again, it counts no more
            farm.devices.settle("d", session, "b", count, fault=True)
        assert farm.devices.get("d").faults_in_a_row == count
        assert farm.devices.get("d").resting
    assert farm.devices.get("d").state is DeviceState.QUARANTINED
    assert farm.devices.get("d").faults == 2 * limit - 1
    with pytest.raises(NoDeviceError, match="quarantine: d"):
        farm.devices.require("host")
    connect_device("d")  # a new session does not end it
    assert farm.devices.get("d").state is DeviceState.QUARANTINED
    assert farm.devices.release("d").takes_work


def test_coming_back_in_the_middle_of_a_batch_is_a_fault(farm: Farm, connect_device) -> None:
    _, session = connect_device("d")
    farm.devices.hold("d", session, "batch")
    connect_device("d")
    device = farm.devices.get("d")
    assert (device.faults, device.lease) == (1, None)


def test_require_names_what_is_there(farm: Farm, connect_device) -> None:
    with pytest.raises(NoDeviceError, match="none"):
        farm.devices.require("host")
    connect_device("pi", arch="aarch64")
    with pytest.raises(NoDeviceError, match="pi"):
        farm.devices.require("x86-64-v2")
    connect_device("here")
    assert [device.id for device in farm.devices.require("host")] == ["here"]


def test_targets_match_by_architecture_and_extensions() -> None:
    target = parse_target("x86-64-v3")
    able = {"arch": "x86_64", "features": sorted(target.required_features | {"sse4a"})}
    need = requirement("x86-64-v3")
    assert runs(need, able)
    assert runs(requirement("x86-64-v2"), able)
    assert not runs(requirement("x86-64-v4"), able)
    assert not runs(need, {**able, "arch": "aarch64"})
    for feature in target.required_features:
        rest = [name for name in able["features"] if name != feature]
        assert not runs(need, {**able, "features": rest})
    assert not runs(need, {})
    assert need.startswith("x86_64+")
    with pytest.raises(UsageError, match="z80"):
        requirement("z80")
