"""Tests of access control: the table of access, and its effect for each kind of user."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import typer

from farrier import progress
from farrier.errors import AuthenticationError, ForbiddenError
from farrier.options import CompileOptions
from farrier.sdk.client import Client
from farrier_farm.access.users import Role, Users
from farrier_server.access import TABLE, Relation
from farrier_server.api.events import shown_to
from farrier_server.viewer import Viewer
from tests.server.test_gate import routes

OPTIONS = CompileOptions(target="rpi4", verify=False)


@pytest.fixture
def as_user_of() -> Iterator[Callable[..., httpx.Client]]:
    """Make a client of a user who is added: `as_user_of(service, "ann", group="lab")`."""
    clients: list[httpx.Client] = []

    def make(service, name: str, role: Role = Role.USER, **options) -> httpx.Client:
        token = Users(service.settings.home).add(name, role, **options)
        head = {"Authorization": f"Bearer {token}"}
        clients.append(httpx.Client(base_url=service.url, headers=head, timeout=30))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def as_user(service, as_user_of) -> Callable[..., httpx.Client]:
    """The same, of the one service."""
    return functools.partial(as_user_of, service)


def test_every_operation_has_a_rule_and_every_rule_an_operation(service):
    operations = set(routes(service))
    assert operations == set(TABLE)


def test_the_page_on_access_has_the_table(update_golden):
    """`pytest --update-golden` writes the rows of the table anew."""
    page = Path(__file__).parents[2] / "docs/operate/access.md"
    rows = [
        f"| `{method} {path}` | {rule.least or '–'} "
        f"| {'' if rule.relation is Relation.NONE else rule.relation} |"
        for (method, path), rule in TABLE.items()
    ]
    text = page.read_text()
    shown = re.findall(r"^\| `[A-Z]+ /\S+` \|.*\|$", text, re.MULTILINE)
    if update_golden:
        before, after = text.split(shown[0])[0], text.split(shown[-1])[1]
        page.write_text(before + "\n".join(rows) + after)
        return
    assert shown == rows, "pytest --update-golden tests/server/test_access.py writes them anew"


def test_an_operation_without_a_rule_is_refused(service, monkeypatch):
    rules = {operation: rule for operation, rule in TABLE.items() if operation[1] != "/v1/jobs"}
    monkeypatch.setattr("farrier_server.access.TABLE", rules)
    answer = service.http().get("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert "GET /v1/jobs has no access rule" in answer.json()["detail"]


def test_every_role_is_held_to_its_rules(as_user):
    """Nothing is done: what the table allows is refused for its missing or malformed parts."""
    clients = {role: as_user(f"a-{role}", role) for role in Role}
    for (method, path), rule in TABLE.items():
        if rule.least is None or path in ("/v1/events", "/v1/session"):
            continue
        is_shared = rule.relation in (Relation.READS_RECORDS, Relation.CHANGES_RECORDS)
        least = Role.OPERATOR if is_shared else rule.least
        for role, client in clients.items():
            answer = client.request(method, re.sub(r"{\w+}", "0" * 64, path))
            is_refused = answer.status_code == 403
            assert is_refused == (not role.includes(least)), (method, path, role, answer.text)
            if is_refused and method != "HEAD":
                problem = answer.json()
                assert problem["code"] == "forbidden"
                assert f"needs the role {least}" in problem["detail"]
                assert f"--role {least}" in problem["hint"]


def test_what_another_user_has_is_unknown(service, as_user):
    """A route about a job answers a stranger as for a job that does not exist."""
    ann, ben = as_user("ann"), as_user("ben")
    model = service.farm.blobs.put(b"model")
    job = service.farm.jobs.submit(model, OPTIONS, owner="ann")
    upload = service.farm.blobs.begin(3, "0" * 64, "ann")
    hook = service.farm.webhooks.add("ann", "https://example.org/", ["job.failed"]).id
    exploration = service.farm.explorations.add("e", {}, {}, ["m"], owner="ann").about.id
    have = {"job_id": job.id, "model_id": model, "upload_id": upload.id, "webhook_id": hook}
    have["exploration_id"] = exploration
    unknown = {name: text[:-4] + "0000" for name, text in have.items()}
    asked = 0
    for method, path in TABLE:
        if not any(f"{{{name}}}" in path for name in have):
            continue
        texts = []
        for ids in (have, unknown):
            url = path.format(**ids, task="t", kernel="0")
            body = {"json": {"to": 1}} if "rollback" in path else {}
            answer = ben.request(method, url, headers={"Upload-Offset": "0"}, **body)
            assert answer.status_code == 404, (method, path)
            texts.append(re.sub("|".join(ids.values()), "ID", answer.text))
        assert texts[0] == texts[1], (method, path)
        asked += 1
    assert asked > 20
    assert ann.get(f"/v1/jobs/{job.id}").json()["state"] == "queued"
    assert ann.get(f"/v1/models/{model}").status_code == 200
    assert ann.get(f"/v1/uploads/{upload.id}").status_code == 200


def upload(http: httpx.Client, data: bytes) -> dict:
    """Announce a file, and send it where its bytes are asked for; the first answer."""
    body = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    begun = http.post("/v1/uploads", json=body).json()
    if not begun["complete"]:
        url = f"/v1/uploads/{begun['id']}"
        done = http.patch(url, content=data, headers={"Upload-Offset": "0"}).json()
        assert done["complete"], done
    return begun


def submit(http: httpx.Client, model: str, **options) -> httpx.Response:
    body = {"model": model, "options": {"target": "rpi4", "verify": False}, **options}
    return http.post("/v1/jobs", json=body)


def test_an_upload_tells_nothing_of_what_others_have(service, as_user):
    """H5: who sends a file that is here sends all of it; only who has sent it does so once."""
    ann, ben = as_user("ann"), as_user("ben")
    assert not upload(ann, b"weights")["complete"]
    assert upload(ann, b"weights")["complete"]
    assert not upload(ben, b"weights")["complete"]
    assert upload(ben, b"weights")["complete"]
    assert [path.name for path in service.farm.blobs.root.glob("[0-9a-f][0-9a-f]/*")] == [
        hashlib.sha256(b"weights").hexdigest()
    ]


def test_a_model_is_of_who_has_sent_it(service, as_user):
    """H5: to everybody else, its id is that of a model that there is not."""
    ann, ben, admin = as_user("ann"), as_user("ben"), as_user("eve", Role.ADMIN)
    model = hashlib.sha256(b"weights").hexdigest()
    before = submit(ben, model)
    upload(ann, b"weights")
    after = submit(ben, model)
    assert before.status_code == after.status_code == 404
    assert before.json() == after.json()
    assert submit(admin, model).status_code == 404
    parts = {"message": model, "files": {"w": {"sha256": model, "size": 7}}}
    answers = [http.post("/v1/models", json=parts) for http in (ann, ben)]
    assert [answer.status_code for answer in answers] == [201, 409]
    assert "does not have" in answers[1].json()["detail"]
    assert ben.get(f"/v1/models/{answers[0].json()['id']}").status_code == 404
    assert ann.get(f"/v1/models/{answers[0].json()['id']}").status_code == 200
    assert submit(ann, answers[0].json()["id"]).status_code == 201


def test_an_inspection_is_of_who_asks_for_it(service, as_user):
    ann, ben = as_user("ann", group="lab"), as_user("ben", group="lab")
    model = hashlib.sha256(b"weights").hexdigest()
    url = f"/v1/models/{model}/inspection"
    upload(ann, b"weights")
    job = ann.post(url).json()["job"]
    assert (ben.post(url).status_code, ben.get(url).status_code) == (404, 404)
    upload(ben, b"weights")
    assert ben.get(url).status_code == 404
    answer = ben.post(url)
    assert answer.status_code == 201
    assert answer.json()["job"] != job
    assert ann.get(url).json()["job"] == job
    assert ben.get(f"/v1/jobs/{job}").json()["model"] == ""


def test_what_one_uses_through_a_group_ends_with_it(service, as_user):
    """Whatever a member does with a model of the group makes it theirs by no way but its bytes."""
    users = Users(service.settings.home)
    ann, ben = as_user("ann", group="lab"), as_user("ben", group="lab")
    eve = as_user("eve", Role.ADMIN)
    upload(ann, b"weights"), upload(ann, b"message")
    model, message = (hashlib.sha256(text).hexdigest() for text in (b"weights", b"message"))
    parts = {"message": message, "files": {"w": {"sha256": model, "size": 7}}}
    whole = ann.post("/v1/models", json=parts).json()["id"]
    jobs = [submit(ann, model_id).json()["id"] for model_id in (model, message, whole)]
    for http in (ben, eve):
        for model_id in (model, message, whole):
            assert http.post(f"/v1/models/{model_id}/inspection").status_code == 201
            assert submit(http, model_id).status_code == 201
        begun = http.post("/v1/uploads", json={"size": 7, "sha256": model}).json()
        assert begun["complete"] is False
        assert http.post("/v1/models", json=parts).status_code == 409
    users.remove("ben"), users.remove("eve")
    ben, eve = as_user("ben", group="elsewhere"), as_user("eve", group="elsewhere")
    for http in (ben, eve):
        for model_id in (model, message, whole):
            assert http.get(f"/v1/models/{model_id}").status_code == 404
            assert submit(http, model_id).status_code == 404
        assert http.post("/v1/models", json=parts).status_code == 409
        mine = http.get("/v1/jobs").json()["jobs"]
        assert {job["model"] for job in mine} == {model, message, whole}
    upload(ben, b"weights")
    assert submit(ben, model).status_code == 201
    for job in jobs:
        assert ann.delete(f"/v1/jobs/{job}").status_code == 204
    assert submit(ann, whole).status_code == 201


def test_a_private_job_tells_nothing_of_its_model(service, as_user):
    """H5: neither to strangers nor to those who see how it stands."""
    ann, ben = as_user("ann", group="lab"), as_user("ben", group="lab")
    cid, eve = as_user("cid"), as_user("eve", Role.ADMIN)
    upload(ann, b"weights")
    model = hashlib.sha256(b"weights").hexdigest()
    options = {"target": "rpi4", "verify": False}
    options |= {"shapes": {"pixels": ["crowd", 3]}, "typical": {"crowd": 2}, "hot": [{"crowd": 4}]}
    job = submit(ann, model, private=True, options=options).json()
    assert job["model"] == model
    lease = service.farm.jobs.lease("w", 1)
    service.farm.jobs.say(lease, 1, progress.TrialsMeasured(1, 1, 8.25, None, "a"))
    artifact = service.farm.blobs.put(b"artifact of " + model.encode())
    service.farm.jobs.succeed(lease, artifact, {"latency_ms": 1.5})
    assert ann.get(f"/v1/jobs/{job['id']}").json()["report"] == {"latency_ms": 1.5}
    for http in (ben, eve):
        for answer in (http.get(f"/v1/jobs/{job['id']}"), http.get("/v1/jobs")):
            assert '"state":"succeeded"' in answer.text
            for secret in (model, artifact, "latency_ms", "pixels", "crowd", "8.25"):
                assert secret not in answer.text
        assert http.get(f"/v1/jobs/{job['id']}/artifact").json()["code"] == "private"
    for http in (ben, cid, eve):
        assert model not in http.get("/v1/overview").text
        assert submit(http, model).status_code == 404
    assert cid.get("/v1/jobs").json()["jobs"] == []


def test_an_upload_is_of_who_began_it(service, as_user):
    """H9: nobody else goes on with it, not even an admin, and it stays as it was."""
    ann, ben, eve = as_user("ann"), as_user("ben", Role.OPERATOR), as_user("eve", Role.ADMIN)
    body = {"size": 4, "sha256": hashlib.sha256(b"good").hexdigest()}
    url = f"/v1/uploads/{ann.post('/v1/uploads', json=body).json()['id']}"
    for http in (ben, eve):
        answer = http.patch(url, content=b"evil", headers={"Upload-Offset": "0"})
        assert (answer.status_code, http.get(url).status_code) == (404, 404)
    assert ann.patch(url, content=b"good", headers={"Upload-Offset": "0"}).json()["complete"]


def test_only_owners_and_admins_change_a_job(service, as_user):
    """H9: members of a group share what their jobs bring, and may cancel them."""
    ann, ben = as_user("ann", group="lab"), as_user("ben", group="lab")
    cid, bob = as_user("cid", group="other"), as_user("bob", Role.OPERATOR)
    eve = as_user("eve", Role.ADMIN)
    upload(ann, b"weights")
    model = hashlib.sha256(b"weights").hexdigest()

    def statuses(method: str, path: str, **options) -> list[int]:
        job = submit(ann, model).json()["id"]
        everybody = (cid, bob, ben, eve, ann)
        url = f"/v1/jobs/{job}{path}"
        return [http.request(method, url, **options).status_code for http in everybody]

    assert statuses("GET", "") == [404, 200, 200, 200, 200]
    assert statuses("GET", "/log") == [404, 403, 200, 200, 200]
    assert statuses("POST", "/cancel") == [404, 200, 200, 200, 200]
    assert statuses("DELETE", "") == [404, 403, 403, 204, 404]
    assert statuses("POST", "/rollback", json={"to": 1}) == [404, 403, 403, 404, 404]
    assert submit(ben, model).status_code == 201  # The model belongs to a public job of the group.
    assert submit(cid, model).status_code == 404


def test_lists_show_what_one_may_see(service, as_user):
    ann, ben = as_user("ann", group="lab"), as_user("ben", group="lab")
    cid, bob = as_user("cid"), as_user("bob", Role.OPERATOR)
    model = service.farm.blobs.put(b"weights")
    for owner in ("ann", "ben", "cid"):
        service.farm.jobs.submit(model, OPTIONS, owner=owner, name=f"job of {owner}")
    seen = {ann: {"ann", "ben"}, ben: {"ann", "ben"}, cid: {"cid"}, bob: {"ann", "ben", "cid"}}
    lease = service.farm.jobs.lease("w", 1)
    for http, owners in seen.items():
        for query in ({}, {"q": "job"}, {"sort": "name"}, {"sort": "finished", "q": "of"}):
            page = http.get("/v1/jobs", params=query).json()
            assert {job["owner"] for job in page["jobs"]} == owners, query
        overview = http.get("/v1/overview").json()
        assert overview["jobs"]["queued"] == len(owners - {"ann"})
        assert [job["id"] for job in overview["running"]] == [lease.item] * ("ann" in owners)
    assert cid.get("/v1/jobs", params={"owner": "ann"}).json()["jobs"] == []


def test_a_listing_is_of_who_owns_what_it_lists(service, as_user):
    """Whoever has asked for it, and their group, see of it what they see of the compilation."""
    ann, eve = as_user("ann"), as_user("eve", Role.ADMIN, group="staff")
    mate = as_user("mate", group="staff")
    jobs, blobs = service.farm.jobs, service.farm.blobs
    model = blobs.put(b"weights")
    jobs.submit(model, OPTIONS, owner="ann", name="ann's")
    jobs.succeed(lease := jobs.lease("w", 1), blobs.put(b"artifact"), {}, 8)
    listing = eve.post(f"/v1/jobs/{lease.item}/listing").json()["job"]
    before = jobs.submit(model, OPTIONS, owner="ann", name="ann's other")
    jobs.succeed(jobs.lease("w", 1), blobs.put(b"other"), {}, 8)
    older, _ = jobs.list_kernels(jobs.get(before.id), owner="eve")
    page = {"kind": "list"}
    assert mate.get("/v1/jobs", params=page).json()["jobs"] == []
    for job_id in (listing, older.id):
        assert mate.get(f"/v1/jobs/{job_id}").status_code == 404
        assert ann.get(f"/v1/jobs/{job_id}").json()["model"] == model
    seen = eve.get("/v1/jobs", params=page).json()["jobs"]
    assert {(job["id"], job["model"]) for job in seen} == {(listing, model), (older.id, model)}
    assert jobs.get(listing).owner == "ann"


def test_open_results_are_read_by_all_and_changed_by_none(farm_settings, start_service, as_user_of):
    service = start_service(dataclasses.replace(farm_settings, open_results=True))
    ann, cid = as_user_of(service, "ann"), as_user_of(service, "cid")
    upload(ann, b"weights")
    model = hashlib.sha256(b"weights").hexdigest()
    public, private = submit(ann, model).json()["id"], submit(ann, model, private=True).json()["id"]
    assert [job["id"] for job in cid.get("/v1/jobs").json()["jobs"]] == [public]
    for path in ("", "/log", "/trials"):
        assert cid.get(f"/v1/jobs/{public}{path}").status_code == 200
        assert cid.get(f"/v1/jobs/{private}{path}").status_code == 404
    assert cid.post(f"/v1/jobs/{public}/cancel").json()["code"] == "forbidden"
    assert cid.delete(f"/v1/jobs/{public}").json()["code"] == "forbidden"
    assert cid.delete(f"/v1/jobs/{private}").json()["code"] == "not-found"


def test_news_tell_what_one_may_see():
    """Nobody knows whether the job of an older version's event is private."""

    def viewer(name: str, role: Role = Role.USER, **options) -> Viewer:
        return Viewer(name, role, frozenset({name, *options.get("mates", ())}), "open" in options)

    ann, mate, cid = viewer("ann"), viewer("ben", mates={"ann"}), viewer("cid")
    bob, reader = viewer("bob", Role.OPERATOR), viewer("dan", open=True)
    event = {"kind": "job", "job": "1", "owner": "ann", "private": False, "error": {"code": "x"}}
    private = {**event, "private": True}
    older = {name: value for name, value in event.items() if name != "private"}
    for data, readers, others in (
        (event, (ann, mate, reader), (bob,)),
        (private, (ann,), (bob, mate)),
        (older, (ann,), (bob, mate)),
    ):
        for watcher in (ann, mate, cid, bob, reader):
            shown = shown_to(watcher, data)
            assert (shown is not None) == (watcher in (*readers, *others)), (watcher, data)
            assert ("error" in (shown or {})) == (watcher in readers), (watcher, data)
    warning = {"kind": "warning", "role": "worker", "message": "job 1 of ann"}
    device = {"kind": "device", "device": "d", "what": "faulted", "job": "1", "reason": "r"}
    assert (shown_to(bob, warning), shown_to(ann, warning)) == (warning, None)
    assert shown_to(bob, device) == device
    assert shown_to(ann, device) == {"kind": "device", "device": "d", "what": "faulted"}


def test_admins_make_tokens_and_operators_see_who_has_one(service, as_user):
    admin, bob = as_user("eve", Role.ADMIN), as_user("bob", Role.OPERATOR)
    body = {"name": "ann", "group": "lab", "expires": "30d"}
    created = admin.post("/v1/users", json=body)
    assert (created.status_code, created.headers["cache-control"]) == (201, "no-store")
    user, token = created.json()["user"], created.json()["token"]
    assert (user["name"], user["role"], user["group"], user["expired"]) == (
        *("ann", "user", "lab"),
        False,
    )
    assert user["expires"] - user["created"] == pytest.approx(30 * 86400, abs=60)
    listed = bob.get("/v1/users")
    assert token not in listed.text
    assert [listed_user["name"] for listed_user in listed.json()["users"]] == ["ann", "bob", "eve"]
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {token}"}) as ann:
        about = {name: user[name] for name in ("name", "role", "group", "expires")}
        assert ann.get("/v1/account").json() == about
        assert ann.get("/v1/users").status_code == 403
        again = admin.post("/v1/users/ann/rotate", json={"expires": "never"}).json()
        assert again["user"]["expires"] is None
        assert ann.get("/v1/account").status_code == 401
        ann.headers["Authorization"] = f"Bearer {again['token']}"
        assert ann.get("/v1/account").status_code == 200
        assert admin.delete("/v1/users/ann").status_code == 204
        assert ann.get("/v1/account").status_code == 401
    for answer in (admin.delete("/v1/users/ann"), admin.delete("/v1/users/default")):
        assert answer.status_code == 404
    for wrong, status in (
        ({"name": "bob"}, 409),
        ({"name": "default"}, 409),
        ({"name": "a b"}, 400),
        ({"name": "ann", "expires": "soon"}, 400),
        ({"name": "ann", "expires": "2001-01-01"}, 400),
        ({"name": "ann", "role": "root"}, 400),
    ):
        assert admin.post("/v1/users", json=wrong).status_code == status, wrong


def test_a_token_that_expires_says_so_and_ends_what_it_opened(service, as_user, monkeypatch):
    ann = as_user("ann", expires=time.time() + 60)
    token = ann.headers["Authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=service.url, timeout=30) as browser:
        session = browser.post("/v1/session", json={"token": token}).json()
        assert session["expires"] <= time.time() + 60
        assert (ann.get("/v1/jobs").status_code, browser.get("/v1/jobs").status_code) == (200, 200)
        later = time.time() + 61
        monkeypatch.setattr("farrier_farm.access.users.time.time", lambda: later)
        answer = ann.get("/v1/jobs")
        assert (answer.status_code, answer.json()["code"]) == (401, "token-expired")
        assert "the token of ann has expired" in answer.json()["detail"]
        assert "rotate ann" in answer.json()["hint"]
        assert browser.get("/v1/jobs").status_code == 401
        assert browser.post("/v1/session", json={"token": token}).status_code == 401


def test_the_sdk_and_the_command_line_do_the_same(service, capsys):
    from farrier.cli.app import build

    def farrier(*words: str) -> str:
        typer.main.get_command(build()).main(
            ["users", *words, "--server", service.url], standalone_mode=False
        )
        return capsys.readouterr().out.strip()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARRIER_TOKEN", service.token)
        token = farrier("add", "ann", "--group", "lab", "--expires", "30d")
        assert "ann" in farrier()
        assert farrier("list") == farrier()
        assert "default: admin" in farrier("me")
        with Client(service.url, token) as ann:
            assert (ann.users.me().name, ann.users.me().role) == ("ann", "user")
            with pytest.raises(ForbiddenError, match="needs the role admin"):
                ann.users.add("bob")
            new = farrier("rotate", "ann")
            with pytest.raises(AuthenticationError):
                ann.users.me()
        with Client(service.url, new) as ann:
            assert ann.users.me().group == "lab"
        farrier("remove", "ann")
        with Client(service.url, service.token) as admin:
            assert admin.users.list() == []


def test_the_audit_log_tells_operators_of_no_model(service, as_user):
    ann, bob = as_user("ann"), as_user("bob", Role.OPERATOR)
    upload(ann, b"weights")
    model = hashlib.sha256(b"weights").hexdigest()
    ann.post("/v1/models", json={"message": model, "files": {"w": {"sha256": model, "size": 7}}})
    ann.post(f"/v1/models/{model}/inspection")
    submit(ann, model, private=True)
    shown = bob.get("/v1/audit", params={"user": "ann"})
    assert {"models.add", "models.inspection", "jobs.add"} <= {
        entry["action"] for entry in shown.json()["entries"]
    }
    assert model not in shown.text
    assert "".join(e["object"] for e in shown.json()["entries"] if "models" in e["action"]) == ""
