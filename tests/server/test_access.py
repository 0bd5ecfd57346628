"""Who may do what: the table of access, and what it comes to for each kind of user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest

from farrier_farm.users import Role, Users
from farrier_server.access import TABLE, Relation
from tests.server.test_gate import routes


@pytest.fixture
def as_user(service) -> Iterator[Callable[..., httpx.Client]]:
    """Makes a client of a user who is added: `as_user("ann", Role.USER, group="lab")`."""
    users = Users(service.settings.home)
    clients: list[httpx.Client] = []

    def make(name: str, role: Role = Role.USER, **given) -> httpx.Client:
        head = {"Authorization": f"Bearer {users.add(name, role, **given)}"}
        clients.append(httpx.Client(base_url=service.url, headers=head, timeout=30))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_every_operation_has_a_rule_and_every_rule_an_operation(service):
    operations = set(routes(service))
    assert operations == set(TABLE)


def test_an_operation_without_a_rule_is_refused(service, monkeypatch):
    rules = {operation: rule for operation, rule in TABLE.items() if operation[1] != "/v1/jobs"}
    monkeypatch.setattr("farrier_server.access.TABLE", rules)
    answer = service.http().get("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "GET /v1/jobs has no rule" in answer.json()["detail"]


def test_every_role_is_held_to_its_rules(as_user):
    """Nothing is done: what the table allows is refused for its missing or malformed parts."""
    clients = {role: as_user(f"a-{role}", role) for role in Role}
    for (method, path), rule in TABLE.items():
        if rule.least is None or path in ("/v1/events", "/v1/session"):
            continue
        for role, client in clients.items():
            answer = client.request(method, re.sub(r"{\w+}", "0" * 64, path))
            is_refused = answer.status_code == 403
            assert is_refused == (not role.includes(rule.least)), (method, path, role, answer.text)
            if is_refused and method != "HEAD":
                problem = answer.json()
                assert problem["code"] == "forbidden"
                assert f"takes the role {rule.least}" in problem["detail"]
                assert f"--role {rule.least}" in problem["hint"]


def test_what_another_user_has_is_unknown(service, as_user):
    """A route about a job tells a stranger what it tells of a job that there is not."""
    ann, ben = as_user("ann"), as_user("ben")
    model = service.farm.blobs.put(b"model")
    job = service.farm.jobs.submit(model, options(), owner="ann")
    unknown = job.id[:-4] + "0000"
    about = [(m, p) for (m, p), rule in TABLE.items() if rule.relation is not Relation.NONE]
    assert len(about) > 15
    for method, path in about:
        if "{job_id}" not in path:
            continue
        texts = []
        for job_id in (job.id, unknown):
            url = path.format(job_id=job_id, task="t", kernel="0")
            answer = ben.request(method, url, json={"to": 1} if "rollback" in path else None)
            assert answer.status_code == 404, (method, path)
            texts.append(answer.text.replace(job_id, "JOB"))
        assert texts[0] == texts[1]
    assert ann.get(f"/v1/jobs/{job.id}").json()["state"] == "queued"


def options():
    from farrier.options import CompileOptions

    return CompileOptions(target="rpi4", verify=False)
