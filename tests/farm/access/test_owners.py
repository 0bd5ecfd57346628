"""Tests of the users who may use a file or a model: those who have sent it, for a while, and owners
of its jobs."""

from __future__ import annotations

import pytest

from farrier.errors import ConflictError, ServiceError
from farrier.options import CompileOptions
from farrier_farm.access.owners import Claim, Owners
from farrier_farm.farm import Farm
from tests.waiting import wait_until

OPTIONS = CompileOptions(target="rpi4", verify=False)


def claims(farm: Farm, model: str) -> set[Claim]:
    listed = farm.owners.claims(model)
    assert len(listed) == len(set(listed))
    return set(listed)


def test_who_has_sent_a_file_has_a_claim_of_their_own(farm: Farm) -> None:
    model = farm.blobs.put(b"model")
    assert claims(farm, model) == set()
    for owner in ("ann", "bob", "ann"):
        farm.owners.note(owner, [model, "0" * 64])
    assert claims(farm, model) == {Claim("ann", True), Claim("bob", True)}
    assert farm.owners.claims(model, "ann") == [Claim("ann", True)]
    assert set(farm.owners.claims(model, "eve")) == claims(farm, model)
    assert claims(farm, "0" * 64) == claims(farm, model)
    assert claims(farm, "1" * 64) == set()


def test_a_claim_counts_as_long_as_a_blob_that_nobody_needs(farm: Farm) -> None:
    model = "a" * 64
    farm.owners.note("ann", [model])
    Owners(farm.client, 0.001).note("bob", [model])
    wait_until(lambda: claims(farm, model) <= {Claim("ann", True)})
    left_ms = farm.client.command("PTTL", f"farrier:owners:{model}")
    assert 0 <= left_ms <= farm.settings.blob_age_s * 1000


def test_the_owner_of_a_job_owns_its_model_as_long_as_the_job(farm: Farm) -> None:
    model = farm.blobs.put(b"model")
    job = farm.jobs.submit(model, OPTIONS, owner="ann")
    hidden = farm.jobs.submit(model, OPTIONS, owner="bob", private=True)
    farm.jobs.inspect(model, owner="cid")
    wanted = {Claim("ann", False), Claim("bob", True), Claim("cid", True)}
    assert claims(farm, model) == wanted
    farm.delete(job.id)
    farm.delete(hidden.id)
    assert claims(farm, model) == {Claim("cid", True)}


def test_a_job_of_a_model_on_loan_is_nobody_s_claim(farm: Farm) -> None:
    model = farm.blobs.put(b"model")
    farm.jobs.submit(model, OPTIONS, owner="ann", lent=True)
    farm.jobs.inspect(model, owner="cid", lent=True)
    assert claims(farm, model) == {Claim("", True)}
    farm.owners.note("ann", [model])
    assert farm.owners.claims(model, "ann") == [Claim("ann", True)]
    farm.jobs.submit(model, OPTIONS, owner="bob")
    assert claims(farm, model) == {Claim("", True), Claim("ann", True), Claim("bob", False)}


def test_a_job_of_an_older_version_is_the_default_user_s(farm: Farm) -> None:
    model = farm.blobs.put(b"model")
    job = farm.jobs.submit(model, OPTIONS)
    farm.client.command("HDEL", farm.jobs.leases.key(job.id), "share", "private")
    assert claims(farm, model) == {Claim("default", False)}


def test_an_artifact_is_no_model_of_its_job(farm: Farm) -> None:
    """Nor are blobs that batches and models refer to."""
    farm.jobs.submit(farm.blobs.put(b"model"), OPTIONS, owner="ann")
    lease = farm.jobs.lease("w", 0)
    assert lease is not None
    artifact = farm.blobs.put(b"artifact")
    farm.jobs.succeed(lease, artifact, {})
    with farm.references.held(artifact):
        assert claims(farm, artifact) == set()


def test_an_upload_whose_claim_cannot_be_noted_is_finished_again(farm: Farm) -> None:
    def fails(_: str) -> None:
        raise ServiceError("Redis is away")

    upload = farm.blobs.begin(5, owner="ann")
    farm.blobs.append(upload.id, 0, b"model")
    with pytest.raises(ServiceError):
        farm.blobs.finish(upload.id, fails)
    assert farm.blobs.upload(upload.id).owner == "ann"
    noted: list[str] = []
    assert [farm.blobs.finish(upload.id, noted.append)] == noted


def test_other_bytes_than_promised_are_claimed_by_nobody(farm: Farm) -> None:
    upload = farm.blobs.begin(5, "0" * 64, "ann")
    farm.blobs.append(upload.id, 0, b"model")
    noted: list[str] = []
    with pytest.raises(ConflictError):
        farm.blobs.finish(upload.id, noted.append)
    assert noted == []
