"""Attempts at a job: who holds it no more adds nothing, and the n-th record of a candidate counts
once."""

from __future__ import annotations

import pytest

from farrier.options import CompileOptions
from farrier.records import Context, TuningRecord
from farrier_device.measurement import Status
from farrier_farm.errors import StaleLeaseError
from farrier_farm.farm import Farm
from farrier_farm.leases.leases import Lease
from tests.here import TARGET


def _record(ns: int, number: int = 1, context: Context = Context.ALONE) -> TuningRecord:
    decisions = (("tile", number),)
    return TuningRecord("k", "f", 2, "r", 1, decisions, "", Status.OK, (ns,), context=context)


@pytest.fixture
def attempts(farm: Farm):
    """Begin attempts at one job."""
    job = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    held: list[Lease] = []

    def begin() -> Lease:
        if held:
            farm.jobs.give_back(held[-1], crashed=True, reason="killed")
        held.append(farm.jobs.lease("w", 0))
        assert held[-1].item == job.id
        return held[-1]

    return begin


def _samples(farm: Farm) -> list[int]:
    return [record.samples_ns[0] for record in farm.records]


def test_who_lost_the_job_adds_nothing(farm: Farm, attempts) -> None:
    first = attempts()
    of_first = farm.records.of_job(first.item, None, first)
    of_first.add(_record(10))
    second = attempts()
    with pytest.raises(StaleLeaseError):
        of_first.add(_record(11, 2))
    farm.records.of_job(second.item, None, second).add(_record(12, 3))
    farm.jobs.cancel(second.item)
    with pytest.raises(StaleLeaseError):
        farm.records.of_job(second.item, None, second).add(_record(13, 4))
    assert _samples(farm) == [10, 12]


def test_an_attempt_records_what_the_one_before_had_not(farm: Farm, attempts) -> None:
    lease = attempts()
    records = farm.records.of_job(lease.item, None, lease)
    for _ in range(2):  # The answer was lost.
        records.add(_record(10))
    records.add(_record(11))  # measured twice
    records.add(_record(12, context=Context.MODEL))
    lease = attempts()
    records = farm.records.of_job(lease.item, None, lease)
    for ns in (20, 21, 22):
        records.add(_record(ns))
    for ns in (23, 24):
        records.add(_record(ns, context=Context.MODEL))
    assert _samples(farm) == [10, 11, 12, 22, 24]
    other = farm.jobs.submit("5e" * 32, CompileOptions(target=TARGET))
    lease = farm.jobs.lease("w", 0)
    assert lease.item == other.id
    farm.records.of_job(lease.item, None, lease).add(_record(30))
    assert _samples(farm)[-1] == 30
