"""Private jobs: admins see how they stand, and nothing that they measured or made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farrier.errors import PrivateError
from farrier.sdk.client import Client
from farrier_farm.access.users import Role, Users
from tests.server.test_trials import record


@pytest.fixture
def clients(service) -> Iterator[dict[str, Client]]:
    """Clients of a user and of an admin, as everybody with a token was before there were roles."""
    users = Users(service.settings.home)
    roles = {"ann": Role.USER, "ben": Role.ADMIN}
    by_name = {name: Client(service.url, users.add(name, role)) for name, role in roles.items()}
    yield by_name
    for client in by_name.values():
        client.close()


@pytest.fixture
def job_id(service, clients) -> str:
    """Ann's job, which runs and has measured something."""
    clients["ann"].submit(b"model", target="rpi4", verify=False, private=True)
    job = service.farm.jobs.get(service.farm.jobs.lease("worker", 1).item)
    service.farm.records_of(job).add(record("a", 1, 5000), job.id)
    return job.id


def test_every_route_about_a_private_job_is_its_owners(service, clients, job_id):
    """Exceptions are routes that show its state, and that end it."""
    paths = service.http().get("/openapi.json").json()["paths"]
    open_to_all = {"", "/cancel", "/rollback"}
    asked = 0
    for path, operations in paths.items():
        _, separator, rest = path.partition("/{job_id}")
        if not separator or rest in open_to_all:
            continue
        url = path.format(job_id=job_id, task="a", kernel="k")
        for method in {"get", "post", "head", "put", "patch", "delete"} & set(operations):
            asked += 1
            answer = clients["ben"]._http.request(method, url)
            assert answer.status_code == 403, (method, path)
            if method != "head":
                assert answer.json()["code"] == "private"
                assert "private to ann" in answer.json()["detail"]
            if not path.endswith("/events"):  # That stream has no end.
                own = clients["ann"]._http.request(method, url)
                assert own.status_code != 403, (method, path)
    assert asked > 8


def test_admins_see_how_it_stands(clients, job_id):
    for name, client in clients.items():
        job = client.job(job_id)
        assert (job.private, job.owner, job.state) == (True, "ann", "running")
        assert bool(client._http.get(f"/v1/jobs/{job_id}").json()["model"]) == (name == "ann")
    assert [trial.task for trial in clients["ann"].trials(job_id)] == ["a"]
    with pytest.raises(PrivateError, match="private to ann"):
        next(clients["ben"].trials(job_id))


def test_its_records_are_its_owners(clients, job_id, tmp_path):
    ann, ben = clients["ann"], clients["ben"]
    [line] = ann.export_records(private=True)
    assert [*ben.export_records()] == [*ben.export_records(private=True)] == []
    assert [summary.records for summary in ann.show_records(private=True)] == [1]
    assert ann.fastest_schedules("a", private=True)
    assert not ben.fastest_schedules("a", private=True)
    path = tmp_path / "records.jsonl"
    path.write_text(line + "\n")
    assert ben.import_records(path, private=True).added == 1
    assert ann.prune_records(before=1e9, private=True) == 1
    assert [*ben.export_records(private=True)] == [line]
    assert [*ann.export_records(private=True)] == []


def test_a_key_is_of_a_private_job_or_another(service, clients):
    model = service.farm.blobs.put(b"model")
    service.farm.owners.note("ann", [model])
    options = {"target": "rpi4", "verify": False}
    body = {"model": model, "private": True, "options": options}
    headers = {"Idempotency-Key": "k"}
    http = clients["ann"]._http
    first, again = (http.post("/v1/jobs", json=body, headers=headers).json() for _ in range(2))
    assert first == again
    del body["private"]
    assert http.post("/v1/jobs", json=body, headers=headers).status_code == 409
