"""Versions of a job's artifact over REST and in the SDK, of a worker that the test plays."""

from __future__ import annotations

import hashlib

import pytest

from farrier.errors import NotFoundError, UsageError
from farrier.frontends.onnx.model.file import Model
from tests.here import TARGET

CONTENTS = [b"the untuned one", b"a better one", b"the best"]


@pytest.fixture
def add(service):
    """Add the next version to the one job there is, which it leases first."""
    farm, leases = service.farm, []

    def add_one() -> None:  # No device is connected, so a worker would leave the job in its queue.
        leases[:] = leases or [farm.jobs.leases.take("worker", farm.jobs.leases.queues(), 1)]
        number = 1 + len(farm.jobs.get(leases[0].item).versions)
        data = CONTENTS[number - 1]
        times = {"untuned_ms": {"median": 4.0}, "tuned_ms": {"median": 4.0 - number}}
        report = {**times, "tuned_is_faster": True, "number": number}
        farm.jobs.add_version(leases[0], number, farm.blobs.put(data), report, len(data))

    return add_one


@pytest.fixture
def client(service):
    with service.client() as client:
        yield client


@pytest.fixture
def job_id(client) -> str:
    model = Model.of_bytes(b"model")
    return client.submit(model, target=TARGET, trials=9, now=True, wait_for_device=True).id


def test_a_job_tells_its_versions(service, client, job_id, add):
    job = client.job(job_id)
    assert (job.now, job.versions, job.version, job.artifact) == (True, (), None, None)
    add()
    add()
    job = client.job(job_id)
    assert (job.state, job.version, job.version_is_kept) == ("running", 2, False)
    versions = [
        (version.number, version.median_ms, version.untuned_ms, version.bytes)
        for version in job.versions
    ]
    assert versions == [(1, 3.0, 4.0, len(CONTENTS[0])), (2, 2.0, 4.0, len(CONTENTS[1]))]
    assert job.artifact == hashlib.sha256(CONTENTS[1]).hexdigest() == job.versions[1].artifact
    assert job.report["number"] == 2
    texts = [line.text for line in client.log(job_id)]
    assert texts[-1] == "version 2 of the artifact: 2.000 ms, untuned 4.000 ms"


def test_the_current_version_is_fetched_and_an_older_one_by_its_number(
    service, client, job_id, add, tmp_path
):
    for _ in range(2):
        add()
    assert client.fetch(job_id, tmp_path / "a").read_bytes() == CONTENTS[1]
    assert client.fetch(job_id, tmp_path / "a", version=1).read_bytes() == CONTENTS[0]
    path = f"/v1/jobs/{job_id}/artifact"
    http = service.http()
    assert http.get(path).content == CONTENTS[1]
    answer = http.get(path, params={"version": 1}, headers={"Range": "bytes=4-"})
    assert (answer.status_code, answer.content) == (206, CONTENTS[0][4:])
    assert http.head(path, params={"version": 1}).headers["ETag"].strip('"') == (
        hashlib.sha256(CONTENTS[0]).hexdigest()
    )
    assert http.get(path, params={"version": 3}).status_code == 404
    assert http.get(path, params={"version": 0}).status_code == 400
    with pytest.raises(NotFoundError, match="no version 3"):
        client.fetch(job_id, tmp_path / "b", version=3)


def test_a_rollback_stays(client, job_id, add):
    for _ in range(2):
        add()
    assert client.roll_back(job_id).version == 1
    add()
    job = client.job(job_id)
    assert (job.version, job.version_is_kept, len(job.versions)) == (1, True, 3)
    assert job.report["number"] == 1
    with pytest.raises(NotFoundError, match="no version before"):
        client.roll_back(job_id)
    assert client.roll_back(job_id, to=3).version == 3
    with pytest.raises(NotFoundError, match="no version 4"):
        client.roll_back(job_id, to=4)


def test_what_cannot_be_gone_back_to(service, client, job_id):
    http = service.http()
    for body, status in [({"to": 0}, 400), ({"to": "1"}, 400), ({}, 400), ({"to": 1}, 404)]:
        assert http.post(f"/v1/jobs/{job_id}/rollback", json=body).status_code == status
    assert http.post("/v1/jobs/nothing/rollback", json={"to": 1}).status_code == 404
    with pytest.raises(NotFoundError, match="no version before"):
        client.roll_back(job_id)


def test_there_must_be_something_to_tune(service, client):
    with pytest.raises(UsageError, match="neither trials nor a budget"):
        client.submit(Model.of_bytes(b"model"), target=TARGET, now=True)
    model = service.farm.blobs.put(b"model")
    body = {"model": model, "now": True, "wait_for_device": True, "options": {"target": TARGET}}
    answer = service.http().post("/v1/jobs", json=body)
    assert answer.status_code == 400
    assert "--budget" in answer.json()["hint"]
    assert list(client.jobs()) == []


def test_a_key_is_of_a_job_now_or_later(service, client):
    model = service.farm.blobs.put(b"model")
    options = {"target": TARGET, "trials": 9}
    body = {"model": model, "now": True, "wait_for_device": True, "options": options}
    headers = {"Idempotency-Key": "k"}
    first, again = (
        service.http().post("/v1/jobs", json=body, headers=headers).json()["id"] for _ in range(2)
    )
    assert first == again
    del body["now"]
    assert service.http().post("/v1/jobs", json=body, headers=headers).status_code == 409
