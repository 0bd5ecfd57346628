"""The audit log: each change with who made it, and nobody who can take one out."""

from __future__ import annotations

import dataclasses
import hashlib
import stat

import httpx
import pytest
from typer.testing import CliRunner

from farrier.options import CompileOptions
from farrier_farm.access import audit
from farrier_farm.access.audit import AUDIT, PENDING, Entry, Wanted
from farrier_farm.access.users import Role, Users
from farrier_farm.commands import tokens
from farrier_server.access import TABLE
from farrier_server.audited import action
from tests.here import TARGET


@pytest.fixture
def ann(service):
    token = Users(service.settings.home).add("ann", Role.USER)
    head = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=service.url, headers=head, timeout=30) as client:
        yield client


def entries(service, **wanted):
    with service.client() as client:
        return list(client.audit(**wanted))


def test_what_changes_something_is_noted_with_its_outcome(service, ann):
    model = service.farm.blobs.put(b"model")
    options = CompileOptions(target=TARGET, verify=False)
    job = service.farm.jobs.submit(model, options, owner="ben").id
    ann.post(f"/v1/jobs/{job}/cancel")  # She may not know of it.
    ann.post("/v1/devices/d1/release")
    secret = "s3cret-t0ken"
    upload = {"size": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    begun = ann.post("/v1/uploads", json=upload, headers={"X-Note": secret}).json()
    ann.patch(f"/v1/uploads/{begun['id']}", content=b"abc", headers={"Upload-Offset": "0"})
    with service.client() as client:
        client.cancel(job)
        client.delete(job)
    added = service.http().post("/v1/users", json={"name": "eve"}).json()
    ann.get("/v1/jobs")
    noted = [(e.user, e.role, e.action, e.object, e.outcome) for e in entries(service)][::-1]
    assert noted == [
        ("ann", "user", "jobs.cancel", job, "not-found"),
        ("ann", "user", "devices.release", "d1", "forbidden"),
        ("ann", "user", "uploads.add", begun["id"], "ok"),
        ("default", "admin", "jobs.cancel", job, "ok"),
        ("default", "admin", "jobs.remove", job, "ok"),
        ("default", "admin", "users.add", "eve", "ok"),
    ]
    noted_entries = entries(service)
    assert {e.address for e in noted_entries} == {"127.0.0.1"}
    assert noted_entries[0].at >= noted_entries[-1].at > 1.7e9
    raw = repr(service.farm.client.command("XRANGE", AUDIT, "-", "+"))
    assert secret not in raw
    assert added["token"] not in raw
    assert service.token not in raw


def test_entries_are_chosen_and_paged(service):
    log = service.farm.audit
    for n in range(25):
        log.note(Entry("ann" if n % 2 else "ben", "user", "jobs.add", f"j{n}"))
    log.note(Entry("ann", "user", "devices.release", "d1", outcome="forbidden"))
    assert [e.object for e in entries(service, user="ann", action="jobs")] == [
        f"j{n}" for n in range(23, 0, -2)
    ]
    assert [e.object for e in entries(service, object="j7")] == ["j7"]
    assert [e.action for e in entries(service, outcome="forbidden")] == ["devices.release"]
    assert entries(service, since=4e9) == []
    http, seen, after = service.http(), [], ""
    while True:
        page = http.get("/v1/audit", params={"limit": 10, "after": after}).json()
        seen += page["entries"]
        after = page["next"]
        if not after:
            break
    assert [e["object"] for e in seen] == ["d1", *(f"j{n}" for n in range(24, -1, -1))]


def test_a_page_looks_at_so_many_entries_and_says_where_it_stands(
    farm_settings, service, monkeypatch
):
    log = service.farm.audit
    log.note(Entry("ann", "user", "jobs.add", "first"))
    for _ in range(6):
        log.note(Entry("ben", "user", "jobs.add"))
    monkeypatch.setattr(audit, "_AT_ONCE", 2)
    monkeypatch.setattr(audit, "_LOOKED_AT", 4)
    page, after = log.read(Wanted(user="ann"), limit=5)
    assert page == []
    page, after = log.read(Wanted(user="ann"), limit=5, after=after)
    assert ([e.object for e in page], after) == (["first"], "")


def test_only_operators_read_it_and_nobody_removes_from_it(service, ann):
    assert ann.get("/v1/audit").status_code == 403
    for method in ("DELETE", "POST", "PUT", "PATCH"):
        assert service.http().request(method, "/v1/audit").status_code == 405
    assert [path for _, path in TABLE if "audit" in path] == ["/v1/audit"]


def test_strangers_fill_nothing(service):
    for _ in range(3):
        httpx.post(f"{service.url}/v1/jobs/x/cancel", headers={"Authorization": "Bearer no"})
        httpx.post(f"{service.url}/v1/session", json={"token": "no"})
    assert entries(service) == []
    httpx.post(f"{service.url}/v1/session", json={"token": service.token})
    assert [(e.user, e.action) for e in entries(service)] == [("default", "session.add")]


def test_no_path_writes_lines_of_its_own(service, ann, caplog):
    with caplog.at_level("INFO", logger="farrier_farm.access.audit"):
        ann.put("/v1/%0aINFO audit: eve (admin)%1b[2J%00", json={})
        ann.delete("/v1/devices/d%0d%0aINFO")
    logged = [record.getMessage() for record in caplog.records if "audit:" in record.message]
    noted = [entry.action + entry.object for entry in entries(service, user="ann")]
    assert len(logged) == len(noted) > 0
    assert all(map(str.isprintable, logged + noted))


def test_commands_on_the_farm_s_machine_are_noted_now_or_later(service, tmp_path):
    home = service.settings.home

    def run(*words):
        done = CliRunner().invoke(tokens, [*words, "--home", str(home)])
        assert done.exit_code == 0, done.output
        return done.output.strip()

    token = run("add", "eve")
    (noted,) = entries(service, action="tokens")
    assert (noted.action, noted.object, noted.role) == ("tokens.add", "eve", "host")
    away = dataclasses.replace(service.settings, redis_url="redis://127.0.0.1:1")
    audit.note_command(away, "tokens.remove", "eve")
    assert stat.S_IMODE((home / PENDING).stat().st_mode) == 0o600
    with (home / PENDING).open("a") as file:
        file.write("damaged\n")
    service.farm.audit.keep()
    assert [e.action for e in entries(service)] == ["tokens.remove", "tokens.add"]
    assert (home / PENDING).read_text() == ""
    assert token not in repr(service.farm.client.command("XRANGE", AUDIT, "-", "+"))


def test_what_is_old_or_too_much_goes(farm_settings, service):
    log = service.farm.audit
    client = service.farm.client
    client.command("XADD", AUDIT, "1-1", "at", "0", "user", "old")
    for _ in range(300):
        client.command("XADD", AUDIT, "2-*", "at", "0", "user", "old")
    log.note(Entry("ann", "user", "jobs.add", "x" * 5000))
    log.keep()
    (newest,) = entries(service)
    assert newest.object == "x" * 200
    bounded = audit.Audit(client, dataclasses.replace(farm_settings, audit_kept=10))
    for number in range(20):
        bounded.note(Entry("ann", "user", "jobs.add", str(number)))
    assert [entry.object for entry in entries(service)] == [str(n) for n in range(19, 9, -1)]


def test_who_does_very_much_pushes_out_their_own_entries_alone(farm_settings, service):
    """H9: no user who floods the log hides what anybody else did."""
    client = service.farm.client
    for number, user in enumerate(("eve", "eve", "bob")):
        client.command("XADD", AUDIT, f"{number + 1}-1", "at", "0", "user", user, "role", "admin")
    bounded = audit.Audit(client, dataclasses.replace(farm_settings, audit_kept=12))
    bounded.note(Entry("ann", "user", "jobs.remove", "a job"))
    for number in range(40):
        bounded.note(Entry("mal", "user", "uploads.add", str(number)))
    left = entries(service)
    assert [entry.user for entry in left] == ["mal"] * 8 + ["ann", "bob", "eve", "eve"]
    assert [entry.object for entry in left][:8] == [str(number) for number in range(39, 31, -1)]
    bounded.keep()
    assert [entry.user for entry in entries(service)] == ["mal"] * 8 + ["ann"]
    for _ in range(20):
        bounded.note(Entry("eve", "admin", "users.add"))
    users = [entry.user for entry in entries(service)]
    assert (users.count("eve"), users.count("ann"), len(users)) == (6, 1, 12)


def test_every_change_has_a_name():
    names = {action(*operation) for operation in TABLE if operation[0] not in ("GET", "HEAD")}
    assert {"jobs.add", "jobs.cancel", "jobs.remove", "cost-model.rollback"} <= names
    assert len(names) == sum(method not in ("GET", "HEAD") for method, _ in TABLE)
