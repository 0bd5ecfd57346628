"""Devices that answer what nobody can measure: whom it costs, and who is trusted."""

from __future__ import annotations

import dataclasses

import pytest

from farrier.errors import ConflictError, NotFoundError
from farrier_device.measurement import CandidateResult, DeviceFault, MeasureResult, Status
from farrier_farm.devices.devices import DeviceState
from farrier_farm.farm import Farm
from farrier_farm.measurements.async_batches import Report
from tests.here import HERE

LIBRARY = "ab" * 32
RESULT = MeasureResult(
    results=(
        CandidateResult(Status.OK, (5271, 5303, 5283), 3e-6),
        CandidateResult(Status.CRASHED, message="SIGSEGV"),
    ),
    sandbox="seccomp",
)
INVENTED = MeasureResult(results=(CandidateResult(Status.OK, (1000,) * 64, 0.0),) * 2)
NO_TIME = MeasureResult(results=(CandidateResult(Status.OK, (0,) * 64, 0.0),) * 2)


@pytest.fixture
def request_with_floors(request_of):
    """A batch whose candidates take 5 µs at least."""
    return dataclasses.replace(request_of(LIBRARY), floors_ns=((5000,), (5000,)), verifies=True)


def test_no_device_is_told_what_its_answer_is_held_to(
    farm: Farm, request_with_floors, connect_device, device_side, request_of
) -> None:
    device = connect_device("d")
    farm.measurements.submit(request_with_floors, HERE)
    assert device_side.lease(*device, 1).request == request_of(LIBRARY)


@pytest.mark.parametrize("invented", [INVENTED, NO_TIME])
def test_an_invented_result_is_a_fault_and_another_device_measures(
    farm: Farm, request_with_floors, connect_device, device_side, invented
) -> None:
    rogue, good = connect_device("rogue"), connect_device("good")
    batch_id = farm.measurements.submit(request_with_floors, HERE)
    fence = device_side.lease(*rogue, 1).lease.fence
    for _ in range(2):  # A repeated report counts once.
        assert device_side.report(*rogue, batch_id, fence, invented) is Report.ACCEPTED
    assert farm.measurements.wait(batch_id, 0) is None
    assert farm.devices.get("rogue").state is DeviceState.QUARANTINED
    assert farm.devices.get("rogue").faults == 1
    fence = device_side.lease(*good, 1).lease.fence
    assert device_side.report(*good, batch_id, fence, RESULT) is Report.ACCEPTED
    assert farm.measurements.wait(batch_id, 0).device == "good"
    assert farm.devices.get("good").faults == 0


def test_a_device_that_is_trusted_has_a_fault_and_goes_on(
    farm: Farm, request_with_floors, connect_device, device_side
) -> None:
    device = connect_device("d", enrolled=True)
    farm.devices.trust("d")
    batch_id = farm.measurements.submit(request_with_floors, HERE)
    for attempt in range(farm.settings.batch_attempts):
        farm.client.command("HSET", "farrier:device:d", "rest_until", 0)
        fence = device_side.lease(*device, 1).lease.fence
        assert device_side.report(*device, batch_id, fence, INVENTED) is Report.ACCEPTED
        assert farm.devices.get("d").faults_in_a_row == attempt + 1
    result = farm.measurements.wait(batch_id, 0)
    assert result.fault is DeviceFault.IMPLAUSIBLE
    assert "1 µs, but no machine of its class takes less than 5 µs (d)" in result.message


def test_what_takes_no_time_is_a_fault_without_a_floor(
    farm: Farm, request_of, connect_device, device_side
) -> None:
    device = connect_device("d")
    batch_id = farm.measurements.submit(request_of(LIBRARY), HERE)
    fence = device_side.lease(*device, 1).lease.fence
    device_side.report(*device, batch_id, fence, NO_TIME)
    device_now = farm.devices.get("d")
    assert (device_now.faults_in_a_row, device_now.state) == (1, DeviceState.IDLE)
    assert farm.measurements.wait(batch_id, 0) is None


def test_an_operator_says_who_is_trusted(farm: Farm, connect_device) -> None:
    connect_device("board", enrolled=True)
    assert not farm.devices.get("board").trusted
    assert farm.devices.trust("board").trusted
    connect_device("board", enrolled=True)  # The agent of the device starts again.
    assert farm.devices.are_trusted(["board", "nobody"]) == [True, False]
    assert not farm.devices.trust("board", False).trusted
    farm.devices.trust_own("board")  # An operator has decided otherwise before.
    assert not farm.devices.get("board").trusted
    connect_device("local", enrolled=True)
    farm.devices.trust_own("local")
    assert farm.devices.get("local").trusted
    with pytest.raises(NotFoundError):
        farm.devices.trust("nobody")


def test_nobody_vouches_for_a_name_that_is_anybodys(farm: Farm, connect_device) -> None:
    connect_device("board")
    for vouch in (farm.devices.trust, farm.devices.trust_own):
        with pytest.raises(ConflictError, match="any holder of the shared device token"):
            vouch("board")
    assert not farm.devices.trust("board", False).trusted
    assert farm.devices.measuring(HERE.device_class, trusted=True) == []


def test_of_those_that_are_trusted_some_are_found(farm: Farm, connect_device) -> None:
    for name in ("a", "b"):
        connect_device(name, enrolled=True)
    its_class = HERE.device_class
    assert farm.devices.measuring(its_class, trusted=True) == []
    farm.devices.trust("b")
    assert farm.devices.measuring(its_class, trusted=True) == ["b"]
    assert set(farm.devices.measuring(its_class)) == {"a", "b"}
    farm.devices.trust("b", False)
    assert farm.devices.measuring(its_class, trusted=True) == []
