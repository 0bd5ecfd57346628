"""The registry: sessions fence, silence means offline, faults lead to quarantine."""

from __future__ import annotations

import dataclasses
import time
from typing import ClassVar

import pytest

from farrier.errors import NoDeviceError
from farrier_device.describe import describe
from farrier_farm.devices.classes import MeasurementTarget
from farrier_farm.devices.devices import Devices, DeviceState
from farrier_farm.errors import StaleSessionError
from farrier_farm.farm import Farm
from tests.here import HERE


def test_a_device_is_what_it_said(farm: Farm, connect_device) -> None:
    connect_device("pi", cpu="my own", board={"name": "Pi ü"})
    device = farm.devices.get("pi")
    assert device.state is DeviceState.IDLE
    assert device.description["cpu"] == "my own"
    assert device.description["board"] == {"name": "Pi ü"}
    assert (device.measured, device.faults, device.lease) == (0, 0, None)
    assert farm.devices.list() == [device]


def test_a_new_session_fences_out_the_old(farm: Farm, connect_device, device_side) -> None:
    _, old = connect_device("d")
    _, new = connect_device("d")
    for call in (
        lambda: device_side.heartbeat("d", old),
        lambda: device_side.hold("d", old, "batch"),
        lambda: device_side.settle("d", old, "batch", 1, fault=True),
    ):
        with pytest.raises(StaleSessionError, match="device d"):
            call()
    assert device_side.heartbeat("d", new).takes_work
    assert farm.devices.get("d").state is DeviceState.IDLE
    assert farm.devices.get("d").faults == 0


def test_an_instance_without_a_name_has_no_session_to_keep(farm: Farm, device_side) -> None:
    here = dataclasses.asdict(describe())
    sessions = [device_side.connect("d", here, instance) for instance in ("a", "a", "b", "", "")]
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 4


def test_a_session_must_have_been_opened(farm: Farm, connect_device, device_side) -> None:
    connect_device("d")
    for device in ("d", "unknown"):
        for stale in ("", "0" * 16):
            with pytest.raises(StaleSessionError):
                device_side.heartbeat(device, stale)


def test_silence_means_offline(farm: Farm, connect_device, device_side) -> None:
    _, session = connect_device("d")
    strict = Devices(farm.client, dataclasses.replace(farm.settings, device_expiry_s=0.1))
    time.sleep(0.15)
    assert strict.get("d").state is DeviceState.OFFLINE
    device_side.heartbeat("d", session)
    assert strict.get("d").state is DeviceState.IDLE


def test_a_clock_that_was_put_back_keeps_no_device_alive_nor_at_rest(
    farm: Farm, connect_device, device_side
) -> None:
    _, session = connect_device("d")
    device_side.settle("d", session, "b", 1, fault=True)
    assert farm.devices.get("d").resting
    key, hour_ms = "farrier:device:d", 3_600_000
    for field in ("seen", "rest_until"):
        farm.client.command("HINCRBY", key, field, hour_ms)
    assert farm.devices.get("d").state is DeviceState.OFFLINE
    device_side.heartbeat("d", session)
    assert farm.devices.get("d").takes_work


def test_states_while_connected(farm: Farm, connect_device, device_side) -> None:
    _, session = connect_device("d")
    device_side.hold("d", session, "batch-1")
    assert farm.devices.get("d").state is DeviceState.BUSY
    assert farm.devices.get("d").lease == "batch-1"
    device_side.settle("d", session, "batch-1", 1, fault=False)
    assert not device_side.heartbeat("d", session, draining=True).takes_work
    device = farm.devices.get("d")
    assert (device.state, device.measured, device.takes_work) == (DeviceState.DRAINING, 1, False)


def test_faults_in_a_row_lead_to_quarantine(farm: Farm, connect_device, device_side) -> None:
    _, session = connect_device("d")
    limit = farm.settings.quarantine_faults
    for fence in range(1, limit):
        device_side.settle("d", session, "a", fence, fault=True)
    device_side.settle("d", session, "a", limit, fault=False)  # A success begins a new row.
    for count in range(1, limit + 1):
        assert farm.devices.get("d").state is DeviceState.IDLE
        for _ in range(2):  # A repeated report does not count again.
            device_side.settle("d", session, "b", count, fault=True)
        assert farm.devices.get("d").faults_in_a_row == count
        assert farm.devices.get("d").resting
    assert farm.devices.get("d").state is DeviceState.QUARANTINED
    assert farm.devices.get("d").faults == 2 * limit - 1
    with pytest.raises(NoDeviceError, match="d is in quarantine"):
        farm.admission.require(HERE)
    connect_device("d")  # A new session does not end the quarantine.
    assert farm.devices.get("d").state is DeviceState.QUARANTINED
    assert farm.devices.release("d").takes_work


def test_coming_back_in_the_middle_of_a_batch_is_a_fault(
    farm: Farm, connect_device, device_side
) -> None:
    _, session = connect_device("d")
    device_side.hold("d", session, "batch")
    connect_device("d")
    device = farm.devices.get("d")
    assert (device.faults, device.lease) == (1, None)


def test_whether_a_device_is_there(farm: Farm, connect_device, device_side) -> None:
    """A device counts if it is connected and not in quarantine: any of a class, or a named one."""
    here, other = (HERE.device_class, ""), ("another-class", "")
    assert not farm.devices.is_there(*here)
    _, session = connect_device("d")
    assert farm.devices.is_there(*here)
    assert farm.devices.is_there(HERE.device_class, "d")
    assert not farm.devices.is_there(*other)
    assert not farm.devices.is_there(HERE.device_class, "e")
    for fence in range(farm.settings.quarantine_faults):
        device_side.settle("d", session, "b", fence, fault=True)
    device_side.heartbeat("d", session)
    assert not farm.devices.is_there(*here)
    assert not farm.devices.is_there(HERE.device_class, "d")
    farm.devices.release("d")
    assert farm.devices.is_there(*here)
    strict = Devices(farm.client, dataclasses.replace(farm.settings, device_expiry_s=0.1))
    time.sleep(0.15)
    assert not strict.is_there(*here)
    assert not strict.is_there(HERE.device_class, "d")
    device_side.heartbeat("d", session)
    connect_device("d", cores=96)  # It is another machine now.
    assert not farm.devices.is_there(*here)
    assert not farm.devices.is_there(HERE.device_class, "d")
    assert farm.devices.is_there(farm.devices.get("d").device_class, "d")


class TestEngines:
    """Tests of the devices on which models can be raced with another engine."""

    ENGINES: ClassVar = {"onnxruntime": "1.2", "openvino": "2026.4", "unheard-of": "1"}

    def test_a_device_tells_them(self, farm: Farm, connect_device) -> None:
        its_class = HERE.device_class
        connect_device("a", engines=self.ENGINES)
        connect_device("b")
        assert farm.devices.get("a").engines == self.ENGINES
        assert farm.devices.get("b").engines == {}
        for engine in ("onnxruntime", "openvino"):
            assert farm.devices.with_engine(engine, its_class) == ["a"]
            assert farm.devices.with_engine(engine, its_class, "a") == ["a"]
            assert farm.devices.with_engine(engine, its_class, "b") == []
            assert farm.devices.with_engine(engine, "another-class") == []
        assert farm.devices.with_engine("unheard-of", its_class) == []

    def test_an_agent_that_starts_without_them_has_none(self, farm: Farm, connect_device) -> None:
        its_class = HERE.device_class
        connect_device("a", engines=self.ENGINES)
        connect_device("a", engines={"openvino": "2027"})
        assert farm.devices.with_engine("onnxruntime", its_class) == []
        assert farm.devices.with_engine("openvino", its_class) == ["a"]
        assert farm.devices.get("a").engines == {"openvino": "2027"}
        connect_device("a", engines=self.ENGINES, cpu="another")
        assert farm.devices.with_engine("openvino", its_class) == []

    def test_who_gets_no_work_races_nothing(self, farm: Farm, connect_device, device_side) -> None:
        its_class = HERE.device_class
        _, session = connect_device("a", engines=self.ENGINES)
        device_side.decline("a", session, "batch", "too old")
        assert farm.devices.with_engine("openvino", its_class) == []
        farm.devices.release("a")
        assert farm.devices.with_engine("openvino", its_class) == ["a"]
        strict = Devices(farm.client, dataclasses.replace(farm.settings, device_expiry_s=0.05))
        time.sleep(0.1)
        assert strict.with_engine("openvino", its_class) == []

    def test_a_place_with_an_engine(self, farm: Farm, connect_device) -> None:
        with pytest.raises(NoDeviceError, match=r"no device of class:.* runs openvino") as caught:
            farm.admission.place_with(HERE, "openvino")
        assert "pip install 'farrier[device,engines]'" in caught.value.hint
        for name in "abc":
            connect_device(name, engines=self.ENGINES if name != "c" else {})
        assert farm.admission.place_with(HERE, "openvino", "a") == MeasurementTarget(
            HERE.device_class, "a"
        )
        assert farm.admission.place_with(HERE, "openvino", "c").device in ("a", "b")
        alone = MeasurementTarget(HERE.device_class, "b")
        assert farm.admission.place_with(alone, "openvino", "a") == alone
        with pytest.raises(NoDeviceError, match="device:c does not run openvino"):
            farm.admission.place_with(MeasurementTarget(HERE.device_class, "c"), "openvino")
