"""Tests of admission: the resolved target of a job, and the errors for a job without a device."""

from __future__ import annotations

import dataclasses
import json

import pytest

from farrier.errors import NoDeviceError, NotFoundError, UsageError
from farrier.options import CompileOptions
from farrier.targets import known_machines, parse_target, to_text
from farrier_device.describe import describe
from farrier_farm.devices.classes import DeviceClass, MeasurementTarget
from farrier_farm.farm import Farm
from farrier_farm.jobs.admission import Admitted
from tests.here import CLASS, HERE, TARGET

MODEL = "5e" * 32
PI = dataclasses.asdict(known_machines()["rpi4"].description)


def test_a_description_is_its_class_whether_or_not_a_device_is_there(farm: Farm) -> None:
    for _ in range(2):
        admitted = farm.admission.admit(TARGET, measured=True)
        assert (admitted.target, admitted.place) == (TARGET, HERE)
        with pytest.raises(NoDeviceError, match="no device for class:"):
            farm.admission.require(admitted.place)


def test_machines_with_equal_extensions_are_told_apart(farm: Farm, connect_device) -> None:
    connect_device("small", cores=2)
    connect_device("large", cores=128)
    small, large = (farm.devices.get(name).device_class for name in ("small", "large"))
    assert small != large
    targets = [
        farm.admission.admit(f"class:{class_id}", measured=True).target
        for class_id in (small, large)
    ]
    assert [parse_target(text).cores for text in targets] == [2, 128]
    with pytest.raises(UsageError, match="several classes") as raised:
        farm.admission.admit("host", measured=True)
    assert f"class:{small} (1 connected)" in raised.value.hint
    assert f"class:{large} (1 connected)" in raised.value.hint


def test_host_is_the_only_class_there_is(farm: Farm, connect_device) -> None:
    with pytest.raises(NoDeviceError, match="no device is connected"):
        farm.admission.admit("host", measured=True)
    connect_device("d", cores=3)
    assert parse_target(farm.admission.admit("host", measured=True).target).cores == 3


def test_an_instruction_set_takes_cores_and_caches_of_a_machine_that_has_it(
    farm: Farm, connect_device
) -> None:
    with pytest.raises(NoDeviceError, match="no device that can run code for x86-64-v2"):
        farm.admission.admit("x86-64-v2", measured=True)
    features = [name for name in describe().features if not name.startswith("avx512")]
    connect_device("d", cores=5, l2_bytes=3 << 20, features=features)
    admitted = farm.admission.admit("x86-64-v2", measured=True)
    code = parse_target(admitted.target)
    assert (code.cpu, code.cores, code.l2_bytes) == ("x86-64-v2", 5, 3 << 20)
    assert admitted.place.device_class == farm.devices.get("d").device_class
    with pytest.raises(NoDeviceError, match="x86-64-v4"):
        farm.admission.admit("x86-64-v4", measured=True)
    assert parse_target(farm.admission.admit("x86-64-v4", measured=False).target).cpu == "x86-64-v4"


def test_a_device_by_name_is_measured_on_alone(
    farm: Farm, connect_device, request_of, device_side
) -> None:
    first, second = connect_device("one"), connect_device("two")
    place = farm.admission.admit("device:two", measured=True).place
    assert place == MeasurementTarget(CLASS.id, "two")
    batch = farm.measurements.submit(request_of("ab" * 32), place)
    assert device_side.lease(*first, 0) is None
    assert device_side.lease(*second, 0).lease.item == batch
    with pytest.raises(NotFoundError, match="three"):
        farm.admission.admit("device:three", measured=True)
    with pytest.raises(NotFoundError, match="class 'none'") as raised:
        farm.admission.admit("class:none", measured=True)
    assert CLASS.id in raised.value.hint


def test_emulated_devices_serve_where_there_is_no_real_one(farm: Farm, connect_device) -> None:
    real = MeasurementTarget(DeviceClass.of(known_machines()["rpi4"].description).id)
    assert farm.admission.admit("rpi4", measured=True).place == real
    connect_device("qemu", **{**PI, "emulated": True})
    assert farm.admission.admit("rpi4", measured=True).place.emulated
    connect_device("pi", **PI)
    assert farm.admission.admit("rpi4", measured=True).place == real


def test_what_it_came_to_is_the_jobs(farm: Farm, connect_device) -> None:
    connect_device("d", cores=7)
    options = CompileOptions(target="x86-64-v2")
    job = farm.jobs.submit(MODEL, options, idempotency_key="k")
    connect_device("d", cores=3)  # another machine, meanwhile
    again = farm.jobs.submit(MODEL, options, idempotency_key="k")
    assert again == job == farm.jobs.get(job.id)
    assert job.target == "x86-64-v2"
    assert parse_target(job.compile_options.target).cores == 7
    assert farm.jobs.admitted(job) == Admitted(job.compile_options.target, job.place)


def test_a_job_of_a_version_without_classes_goes_on(farm: Farm, connect_device) -> None:
    connect_device("d")
    job = farm.jobs.submit(MODEL, CompileOptions(target=TARGET))
    key = f"farrier:job:item:{job.id}"
    farm.client.command("HDEL", key, "target", "class", "device")
    old = farm.jobs.get(job.id)
    assert (old.target, old.place) == (TARGET, None)
    assert farm.jobs.admitted(old) == Admitted(TARGET, HERE)


def test_host_of_a_version_without_classes_is_no_workers_machine(
    farm: Farm, connect_device
) -> None:
    connect_device("d", cores=7)
    job = farm.jobs.submit(MODEL, CompileOptions(target="host"))
    key = f"farrier:job:item:{job.id}"
    farm.client.command("HDEL", key, "target", "class", "device")
    farm.client.command("HSET", key, "options", json.dumps(CompileOptions(target="host").to_dict()))
    assert parse_target(farm.jobs.admitted(farm.jobs.get(job.id)).target).cores == 7


def test_a_device_that_is_another_machine_now_measures_nothing_for_the_one_before(
    farm: Farm, connect_device, request_of, device_side
) -> None:
    connect_device("d", cores=7)
    options = CompileOptions(target="device:d")
    place = farm.jobs.submit(MODEL, options, wait_for_device=True).place
    batch = farm.measurements.submit(request_of("ab" * 32), place)
    now = connect_device("d", cores=3)
    assert device_side.lease(*now, 0) is None
    assert farm.jobs.lease("w", 0) is None
    with pytest.raises(NoDeviceError, match=f"but the job is for class:{place.device_class}"):
        farm.admission.require(place)
    before = connect_device("d", cores=7)
    assert device_side.lease(*before, 0).lease.item == batch
    assert farm.jobs.lease("w", 0) is not None


def test_what_an_older_broker_registered_is_no_class(farm: Farm, connect_device) -> None:
    for name in ("old", "new"):
        connect_device(name, cores=5)
    farm.client.command("HDEL", "farrier:device:old", "class")
    for target in ("host", "x86-64-v2", "device:new"):
        assert parse_target(farm.admission.admit(target, measured=True).target).cores == 5
    with pytest.raises(NoDeviceError, match="device:old has not connected"):
        farm.admission.admit("device:old", measured=True)


def test_an_instruction_set_is_for_a_class_that_gets_work(farm: Farm, connect_device) -> None:
    for name in ("first", "second"):
        connect_device(name, cores=5)
        farm.client.command("HSET", f"farrier:device:{name}", "faults_in_a_row", 5)
        connect_device(name, cores=5)
    connect_device("third", cores=3)
    place = farm.admission.admit("x86-64-v2", measured=True).place
    assert place.device_class == farm.devices.get("third").device_class


def test_what_an_operator_removes_is_connected_no_more(farm: Farm, connect_device) -> None:
    connect_device("kept", cores=2)
    connect_device("removed", cores=2)
    farm.enrolments.revoke("removed")
    farm.enrolments.remove("removed")
    [there] = farm.devices.presence.classes().values()
    assert there.connected == 1


def test_a_gpu_by_name_is_any_class_of_it_whatever_drives_it(farm: Farm, connect_device) -> None:
    gpu = dataclasses.asdict(known_machines()["webgpu:radeon-780m"].description)
    with pytest.raises(NoDeviceError, match="webgpu:radeon-780m"):
        farm.admission.admit("webgpu:radeon-780m", measured=True)
    here = json.dumps(dataclasses.asdict(describe()))
    connect_device("gpu", **gpu | {"cpu": "AMD Radeon 780M (RADV PHOENIX)", "host": here})
    for target in ("webgpu:radeon-780m", "webgpu"):
        admitted = farm.admission.admit(target, measured=True)
        code = parse_target(admitted.target)
        assert (code.cpu, code.host) == ("AMD Radeon 780M (RADV PHOENIX)", parse_target("host"))
        assert admitted.place.device_class == farm.devices.get("gpu").device_class
    with pytest.raises(NoDeviceError, match="webgpu:m1"):
        farm.admission.admit("webgpu:m1", measured=True)


def test_a_gpu_and_its_host_are_a_class_of_both(farm: Farm, connect_device) -> None:
    machines = known_machines()
    gpu = machines["webgpu:videocore7"].description
    board = machines["rpi5"].description
    for name, host in (("board", board), ("desktop", machines["x86-64-v3"].description)):
        said = dataclasses.replace(gpu, cpu="V3D 7.1.7", host=to_text(host))
        connect_device(name, **dataclasses.asdict(said))
    takers = {"rpi5+webgpu:videocore7": "board", "rpi5+webgpu": "board"}
    for target, name in (takers | {"x86-64-v2+webgpu": "desktop"}).items():
        admitted = farm.admission.admit(target, measured=True)
        assert admitted.place.device_class == farm.devices.get(name).device_class, target
        assert parse_target(admitted.target).host == parse_target(target.partition("+")[0])
    with pytest.raises(NoDeviceError, match=r"rpi4\+webgpu is connected"):
        farm.admission.admit("rpi4+webgpu", measured=True)
    farm.enrolments.revoke("board")
    farm.enrolments.remove("board")
    with pytest.raises(NoDeviceError, match=r"rpi5\+webgpu is connected"):
        farm.admission.admit("rpi5+webgpu", measured=True)
    admitted = farm.admission.admit("host+webgpu", measured=True)
    assert admitted.place.device_class == farm.devices.get("desktop").device_class
    code = farm.admission.admit("rpi4+webgpu", measured=False).target
    assert parse_target(code) == parse_target("rpi4+webgpu")


def test_a_gpu_of_nvidia_takes_code_for_its_architecture_and_earlier_ones(
    farm: Farm, connect_device
) -> None:
    """The code is for the architecture that was asked for, and the GPU's name is its class."""
    said = dataclasses.asdict(known_machines()["cuda:h200"].description)
    said |= {"features": ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")}
    connect_device("gpu", **said)
    for target, architecture in (("cuda:sm_80", "sm_80"), ("cuda:h200", "sm_90a")):
        admitted = farm.admission.admit(target, measured=True)
        assert admitted.place.device_class.startswith("nvidia-h200-132c-")
        assert parse_target(admitted.target).architecture == architecture
    with pytest.raises(NoDeviceError, match="cuda:sm_100"):
        farm.admission.admit("cuda:sm_100", measured=True)
