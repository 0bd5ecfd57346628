"""Inspections and listings: jobs of kinds of their own, with what holds for every leased item."""

from __future__ import annotations

import pytest

from farrier.errors import ConflictError, FarrierError, NotFoundError
from farrier.options import CompileOptions
from farrier_farm.farm import Farm
from farrier_farm.jobs.jobs import Job
from farrier_farm.jobs.kinds import PREPARED, JobKind
from farrier_farm.leases.leases import new_id
from farrier_farm.leases.states import State
from tests.here import TARGET


def compiled(farm: Farm) -> Job:
    """A compilation with an artifact."""
    job = farm.jobs.submit(farm.blobs.put(b"m"), CompileOptions(target=TARGET), owner="ann")
    lease = farm.jobs.lease("w", 0.0)
    farm.jobs.succeed(lease, farm.blobs.put(b"compiled"), {}, 8)
    return farm.jobs.get(job.id)


def prepare(farm: Farm, kind: JobKind, job: Job) -> tuple[Job, bool]:
    if kind is JobKind.INSPECT:
        return farm.jobs.inspect(job.model, owner="ann")
    return farm.jobs.list_kernels(job, owner="ann")


def test_an_id_tells_the_kind():
    for kind in JobKind:
        assert JobKind.of(kind.new_id()) is kind
    assert (
        JobKind.of(new_id())
        is JobKind.of("")
        is JobKind.of("inspect")
        is JobKind.of("x-1")
        is JobKind.COMPILE
    )


@pytest.mark.parametrize("kind", PREPARED)
def test_each_is_prepared_once_and_anew_where_it_failed(farm: Farm, kind, audit) -> None:
    source = compiled(farm)
    job, is_new = prepare(farm, kind, source)
    assert (is_new, job.kind, job.owner, job.wait_for_device) == (True, kind, "ann", False)
    assert prepare(farm, kind, source) == (job, False)
    lease = farm.jobs.lease_prepared("w")
    assert lease.item == job.id
    assert prepare(farm, kind, source)[1] is False
    audit(farm)
    farm.jobs.fail(lease, FarrierError("no"))
    again, is_new = prepare(farm, kind, source)
    assert (is_new, again.id != job.id) == (True, True)
    with pytest.raises(NotFoundError):
        farm.jobs.get(job.id)
    farm.jobs.succeed(farm.jobs.lease_prepared("w"), farm.blobs.put(b"{}"), {}, 2)
    assert prepare(farm, kind, source)[1] is False
    audit(farm)
    farm.delete(again.id)
    assert prepare(farm, kind, source)[1] is True
    audit(farm)


@pytest.mark.parametrize("kind", PREPARED)
def test_no_list_count_or_queue_of_compilations_has_them(farm: Farm, kind) -> None:
    source = compiled(farm)
    job, _ = prepare(farm, kind, source)
    assert [listed.id for listed in farm.jobs.list()[0]] == [source.id]
    assert farm.jobs.list(state=State.QUEUED)[0] == farm.jobs.list(owner="bob", kind=kind)[0] == []
    for filters in ({}, {"owner": "ann"}, {"state": State.QUEUED}):
        assert farm.jobs.list(kind=kind, **filters)[0] == [job]
    assert farm.jobs.leases.count(State.QUEUED) == 0
    assert farm.jobs.lease("w", 0.0) is None
    announced = [event.data["job"] for event in farm.events.follow({"": "0-0"}, 0.0)[""]]
    assert set(announced) == {source.id}
    assert farm.events.read(job.id)[0].data["state"] == "queued"


@pytest.mark.parametrize("kind", PREPARED)
def test_one_whose_worker_is_lost_goes_back_and_its_holder_is_refused(
    farm: Farm, kind, expire
) -> None:
    job, _ = prepare(farm, kind, compiled(farm))
    old = farm.jobs.lease_prepared("lost")
    expire(farm.jobs.leases_of(job.id), old)
    assert farm.jobs.reap() == 1
    new = farm.jobs.lease_prepared("w")
    assert (new.item, new.attempt) == (job.id, 2)
    with pytest.raises(FarrierError, match=job.id):
        farm.jobs.renew(old)
    farm.jobs.renew(new)


def test_a_listing_goes_with_its_job_and_keeps_the_artifact_meanwhile(farm: Farm, audit) -> None:
    source = compiled(farm)
    listing, _ = farm.jobs.list_kernels(source)
    assert (listing.of, listing.compiled, listing.model) == (
        source.id,
        source.artifact,
        source.model,
    )
    lease = farm.jobs.lease_prepared("w")
    farm.delete(source.id)
    with pytest.raises(NotFoundError):
        farm.jobs.get(listing.id)
    with pytest.raises(FarrierError):
        farm.jobs.succeed(lease, farm.blobs.put(b"late"), {})
    assert not farm.references.are_there(source.artifact)
    audit(farm)


def test_a_listing_of_a_job_that_was_deleted_meanwhile_is_none(farm: Farm, audit) -> None:
    source = compiled(farm)
    farm.delete(source.id)
    with pytest.raises(NotFoundError, match=source.id):
        farm.jobs.list_kernels(source)
    assert farm.jobs.list(kind=JobKind.LIST)[0] == []
    audit(farm)


def test_what_has_no_artifact_has_no_kernels_to_list(farm: Farm) -> None:
    job = farm.jobs.submit(farm.blobs.put(b"m"), CompileOptions(target=TARGET))
    with pytest.raises(ConflictError, match="it has no kernels"):
        farm.jobs.list_kernels(job)
    inspection, _ = farm.jobs.inspect(job.model)
    with pytest.raises(ConflictError, match="it has no kernels"):
        farm.jobs.list_kernels(inspection)


def test_each_kind_ends_with_its_time(farm: Farm, audit) -> None:
    source = compiled(farm)
    for kind in PREPARED:
        prepare(farm, kind, source)
        farm.jobs.succeed(farm.jobs.lease_prepared("w"), farm.blobs.put(b"{}"), {}, 2)
    assert len(farm.jobs.expired(0.0, 1, 10)) == 3
    assert farm.jobs.expired(0.0, 8, 10) == []
    for job_id in farm.jobs.expired(2e9, 0, 10):
        try:
            farm.delete(job_id)
        except NotFoundError:  # The listing was removed with its job.
            assert JobKind.of(job_id) is JobKind.LIST
    assert farm.jobs.expired(2e9, 0, 10) == []
    audit(farm)
