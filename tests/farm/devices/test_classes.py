"""Tests of device classes: equal machines, operators' statements, and machines without a class."""

from __future__ import annotations

import dataclasses
import json

import pytest

from farrier.errors import UsageError
from farrier.targets import known_machines, parse_target, to_text
from farrier_device.describe import MachineDescription
from farrier_farm.devices.classes import DeviceClass, MeasurementTarget, class_of_device

PI = known_machines()["rpi4"].description
ZEN = MachineDescription(
    arch="x86_64",
    cpu="AMD EPYC 7763",
    features=known_machines()["x86-64-v3"].description.features,
    cores=8,
    l1_bytes=32 << 10,
    l2_bytes=512 << 10,
    l3_bytes=32 << 20,
    memory_bytes=16 << 30,
)


def said(description: MachineDescription, **more: object) -> dict[str, object]:
    return {**json.loads(json.dumps(dataclasses.asdict(description))), **more}


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": "AMD EPYC 7313"},
        {"cores": 4},
        {"l1_bytes": 48 << 10},
        {"l2_bytes": 1 << 20},
        {"l3_bytes": 16 << 20},
        {"features": known_machines()["x86-64-v2"].description.features},
        {"emulated": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_a_timing_depends_on_makes_another_class(change: dict[str, object]) -> None:
    ours, other = DeviceClass.of(ZEN), DeviceClass.of(dataclasses.replace(ZEN, **change))
    assert ours.id != other.id
    assert other.emulated == ("emulated" in change)
    if not other.emulated:
        assert ours.target.fingerprint != other.target.fingerprint


def test_nothing_else_does() -> None:
    more = (*ZEN.features, "arat", "md_clear")
    alike = dataclasses.replace(ZEN, memory_bytes=64 << 30, features=more)
    assert DeviceClass.of(alike).id == DeviceClass.of(ZEN).id
    assert DeviceClass.of(ZEN).id.startswith("amd-epyc-7763-8c-")


def test_a_class_is_a_target() -> None:
    device_class = DeviceClass.of(PI)
    assert parse_target(device_class.to_text()) == device_class.target == parse_target("rpi4")
    assert DeviceClass.from_text(device_class.id, device_class.to_text()) == device_class
    marked = DeviceClass.of(dataclasses.replace(PI, emulated=True))
    assert DeviceClass.from_text(marked.id, marked.to_text()).emulated


def test_places_have_queues_of_their_own() -> None:
    places = [
        MeasurementTarget("a"),
        MeasurementTarget("b"),
        MeasurementTarget("a", "pi"),
        MeasurementTarget("b", "pi"),
        MeasurementTarget("a", "x:y"),
    ]
    assert len({place.queue for place in places}) == len(places)
    assert [MeasurementTarget.of_queue(place.queue) for place in places] == places


def test_an_operator_states_what_a_machine_is() -> None:
    here = dataclasses.replace(PI, cpu="implementer 0x41 part 0x999", l2_bytes=0, cores=2)
    assert class_of_device("d", said(here, machine="rpi4")) == DeviceClass.of(PI)
    assert class_of_device("d", said(here, machine=to_text(PI))) == DeviceClass.of(PI)
    emulated = class_of_device("d", said(dataclasses.replace(here, emulated=True), machine="rpi4"))
    assert emulated == DeviceClass.of(dataclasses.replace(PI, emulated=True))


@pytest.mark.parametrize(
    ("machine", "complaint"),
    [
        ("rpi4", "x86_64, but is stated to be a cortex-a72, which has aarch64"),
        ("x86-64-v2", "an instruction set"),
        ("rpi44", "unknown target 'rpi44'"),
        (
            to_text(dataclasses.replace(ZEN, features=(*ZEN.features, "avx512_vnni"))),
            "AMD EPYC 7763, but lacks its features avx512_vnni",
        ),
    ],
)
def test_what_a_machine_cannot_be_is_refused(machine: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        class_of_device("d", said(ZEN, machine=machine))


def test_a_machine_without_a_code_generator_is_refused() -> None:
    for change, complaint in (({"arch": "riscv64"}, "riscv64"), ({"features": []}, "lacks")):
        with pytest.raises(UsageError, match=complaint):
            class_of_device("d", said(ZEN, **change))
    with pytest.raises(UsageError, match="the device d reports is malformed"):
        class_of_device("d", said(ZEN, cores="two"))
