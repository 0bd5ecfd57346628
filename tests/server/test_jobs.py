"""Jobs, events, artifacts and devices over plain HTTP: what the SDK's tests do not see."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import random
import threading
import time

import pytest

from farrier.errors import VerificationError
from farrier.options import CompileOptions
from farrier.progress import StageStarted, TrialsMeasured, TuningStarted
from farrier_device.describe import describe
from farrier_farm.access.users import Users
from farrier_farm.redis.retry import PROMPT
from farrier_server import serve
from farrier_server.api import events
from farrier_server.api.jobs import Options
from tests.here import CLASS, TARGET
from tests.waiting import wait_until


@pytest.fixture
def model(service) -> str:
    return service.farm.blobs.put(b"model")


RUNS_NOTHING = {"target": TARGET, "verify": False}  # The options of a job that needs no device.


def submit(http, model: str, key: str = "", **body):
    """Devices there are none, unless the body says otherwise."""
    headers = {"Idempotency-Key": key} if key else {}
    body = {"model": model, "wait_for_device": True, "options": {"target": TARGET}, **body}
    return http.post("/v1/jobs", json=body, headers=headers)


def stream(http, job_id: str, last: str = "") -> list[dict[str, str]]:
    """All events of a stream that ends, as fields."""
    headers = {"Last-Event-ID": last} if last else {}
    with http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        blocks = answer.read().decode().split("\n\n")
    collected = [
        dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks if block
    ]
    return [fields for fields in collected if "id" in fields]


def test_options_are_those_of_the_compiler():
    fields = {field.name: field for field in dataclasses.fields(CompileOptions)}
    assert set(Options.model_fields) == set(fields)
    assert Options().compile_options() == CompileOptions()


def test_a_job_says_all_that_is_known(service, model):
    http = service.http()
    options = {**RUNS_NOTHING, "seed": 3, "shapes": {"x": [1, 8]}}
    answer = submit(http, model, name="<script>", options=options)
    assert answer.status_code == 201
    job = answer.json()
    assert job["state"] == "queued"
    assert job["name"] == "<script>"
    assert job["options"]["seed"] == 3
    lease = service.farm.jobs.lease("worker", 1)
    service.farm.jobs.say(lease, 1, StageStarted("tune"))
    service.farm.jobs.say(lease, 2, TuningStarted("version 3"))
    service.farm.jobs.say(lease, 3, TrialsMeasured(8, None, float("inf"), 3.5, "conv"))
    job = http.get(f"/v1/jobs/{job['id']}").json()
    expected = {
        "state": "running",
        "stage": "tune",
        "cost_model": "version 3",
        "trials": 8,
        "best_ms": None,
        "seconds_left": 3.5,
    }
    assert {name: job[name] for name in expected} == expected
    service.farm.jobs.fail(lease, VerificationError("off by 3", hint="report it"))
    error = http.get(f"/v1/jobs/{job['id']}").json()["error"]
    assert error["code"] == "verification"
    assert error["type"] == "urn:farrier:problem:verification"
    assert (error["detail"], error["hint"], error["status"]) == ("off by 3", "report it", 500)


@pytest.mark.parametrize(
    "body",
    [
        {"options": {"trials": -1}},
        {"options": {"trials": "many"}},
        {"options": {"trials": 1.5}},
        {"options": {"budget_s": -0.5}},
        {"options": {"threads": True}},
        {"options": {"color": "red"}},
        {"options": {"target": "z80"}},
        {"options": {"target": 5}},
        {"options": {"target": "x" * 1000}},
        {"options": {"shapes": {"x": [1, -2]}}},
        {"options": {"shapes": {"x": [1] * 100}}},
        {"options": {"shapes": [1, 2]}},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"model": "../../etc/passwd"},
        {"model": None},
        {"surprise": 1},
    ],
)
def test_requests_that_make_no_sense_are_400(service, model, body):
    http = service.http()
    answer = http.post("/v1/jobs", json={"model": model, **body})
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "usage"
    assert http.get("/v1/jobs").json() == {"jobs": [], "next": "", "complete": True}


def test_a_job_is_its_token_s(service, model):
    everybody = service.http()
    token = Users(service.settings.home).add("ann")
    for owner in ("default", "ann"):
        service.farm.owners.note(owner, [model])
    ann = service.http()
    ann.headers["Authorization"] = f"Bearer {token}"
    jobs = [submit(http, model, key="k").json() for http in (everybody, ann)]
    assert [job["owner"] for job in jobs] == ["default", "ann"]
    assert len({job["id"] for job in jobs}) == 2
    for http, seen in ((everybody, ("default", "ann")), (ann, ("ann",))):
        for owner, job in zip(("default", "ann"), jobs, strict=True):
            listed = http.get("/v1/jobs", params={"owner": owner, "state": "queued"}).json()["jobs"]
            assert [listed_job["id"] for listed_job in listed] == [job["id"]] * (owner in seen)
        assert len(http.get("/v1/jobs").json()["jobs"]) == len(seen)
    assert everybody.get("/v1/jobs", params={"owner": "a/b"}).status_code == 400


def test_a_full_queue_is_429_until_there_is_room(farm_settings, start_service):
    settings = dataclasses.replace(farm_settings, max_queued_jobs_of_owner=2)
    service = start_service(settings)
    http, model = service.http(), service.farm.blobs.put(b"model")
    jobs = [submit(http, model, key=f"k{n}").json()["id"] for n in range(2)]
    answer = submit(http, model, key="k2")
    assert answer.status_code == 429
    assert answer.json()["code"] == "queue-full"
    assert "2 jobs of default" in answer.json()["detail"]
    assert f"try again in {answer.headers['Retry-After']} s" in answer.json()["hint"]
    assert submit(http, model, key="k0").json()["id"] == jobs[0]
    assert http.delete(f"/v1/jobs/{jobs[0]}").status_code == 204
    assert submit(http, model, key="k2").status_code == 201


def test_a_deleted_job_is_404(service, model, monkeypatch):
    # The interval at which a stream looks for its job.
    monkeypatch.setattr(events, "KEEPALIVE_S", 0.3)
    http = service.http()
    job_id = submit(http, model).json()["id"]
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as watching:
        lines = watching.iter_lines()
        assert next(lines).startswith("retry")
        assert http.delete(f"/v1/jobs/{job_id}").status_code == 204
        list(lines)  # The stream ends, and another is refused.
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/events"), ("GET", "/artifact")]:
        answer = http.request(method, f"/v1/jobs/{job_id}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), path


def test_infinities_in_a_request_are_400(service, model):
    body = json.dumps({"model": model, "options": {"budget_s": float("inf")}})
    assert service.http().post("/v1/jobs", content=body).status_code == 400


def test_unknown_models_and_jobs_are_404(service):
    http = service.http()
    assert submit(http, "0" * 64).status_code == 404
    for path in ("", "/events", "/artifact"):
        answer = http.get(f"/v1/jobs/nothing{path}")
        assert answer.status_code == 404
        assert answer.json()["code"] == "not-found"
    assert http.post("/v1/jobs/nothing/cancel").status_code == 404


def test_idempotency_key(service, model):
    http = service.http()
    first = submit(http, model, "k", name="n")
    assert submit(http, model, "k", name="n").json()["id"] == first.json()["id"]
    clash = submit(http, model, "k", name="m")
    assert clash.status_code == 409
    assert clash.json()["code"] == "conflict"
    assert len(http.get("/v1/jobs").json()["jobs"]) == 1


def test_a_repeated_request_gets_its_job_whatever_is_gone_since(service, model):
    http = service.http()
    first = submit(http, model, "k").json()
    service.farm.blobs.remove(model, lambda _: False)
    again = submit(http, model, "k", wait_for_device=False)  # No device is connected by now.
    assert (again.status_code, again.json()) == (201, first)
    assert submit(http, model, "k", name="m").status_code == 409
    assert submit(http, model, "l", wait_for_device=False).json()["code"] == "no-device"
    assert submit(http, model, "l").json()["code"] == "not-found"


def test_events_resume_and_end(service, model):
    http = service.http()
    job_id = submit(http, model, options=RUNS_NOTHING).json()["id"]
    lease = service.farm.jobs.lease("worker", 1)
    for number in range(1, 6):
        service.farm.jobs.say(lease, number, StageStarted(f"stage {number}\n\nid: 0-0"))
    service.farm.jobs.fail(lease, VerificationError("wrong"))
    events = stream(http, job_id)
    data = [json.loads(event["data"]) for event in events]
    assert [event["event"] for event in events] == [d["kind"] for d in data]
    assert [d["kind"] for d in data] == ["state", "state", *["stage-started"] * 5, "state"]
    assert data[2]["stage"] == "stage 1\n\nid: 0-0"
    assert data[-1]["state"] == "failed"
    assert data[-1]["error"]["code"] == "verification"
    assert stream(http, job_id, events[3]["id"]) == events[4:]
    # A watcher who has seen the end receives it again, instead of waiting.
    (again,) = stream(http, job_id, events[-1]["id"])
    assert json.loads(again["data"])["state"] == "failed"
    for malformed in ("x", "1", "1-2-3"):
        headers = {"Last-Event-ID": malformed}
        answer = http.get(f"/v1/jobs/{job_id}/events", headers=headers)
        assert answer.status_code == 400


def test_events_arrive_while_they_happen(service, model):
    http = service.http()
    job_id = submit(http, model, options=RUNS_NOTHING).json()["id"]
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        lines = answer.iter_lines()
        while "queued" not in next(lines):
            pass
        begun = time.monotonic()
        lease = service.farm.jobs.lease("worker", 1)
        while "running" not in next(lines):
            pass
        assert time.monotonic() - begun < 2
        service.farm.jobs.give_back(lease, crashed=False, reason="")


def test_idle_streams_are_kept_alive(service, model, monkeypatch):
    from farrier_server.api import events

    monkeypatch.setattr(events, "KEEPALIVE_S", 0.3)
    http = service.http()
    job_id = submit(http, model).json()["id"]
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        lines = answer.iter_lines()
        assert sum(next(lines) == ": keepalive" for _ in range(10)) >= 2


def test_many_watchers_hold_no_threads(service, model):
    http = service.http()
    job_id = submit(http, model).json()["id"]
    path = f"/v1/jobs/{job_id}/events"
    with contextlib.ExitStack() as watching:
        for _ in range(60):  # More than the threads that serve blocking routes.
            answer = watching.enter_context(service.http().stream("GET", path))
            assert next(answer.iter_lines()).startswith("retry")
        begun = time.monotonic()
        assert http.get(f"/v1/jobs/{job_id}").status_code == 200
        assert time.monotonic() - begun < 2


def test_small_answers_do_not_wait_for_acknowledgements(service):
    """Nagle's algorithm against delayed acknowledgements costs 40 ms a request."""
    http = service.http()
    http.get("/healthz")
    seconds = []
    for _ in range(30):
        begun = time.monotonic()
        http.get("/healthz")
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.03


@pytest.fixture
def finished(service, model) -> tuple[str, bytes]:
    """The id of a job that succeeded, and its artifact."""
    data = random.Random(8).randbytes(1_000_003)
    job = service.farm.jobs.submit(model, CompileOptions(target=TARGET), name="../../x")
    lease = service.farm.jobs.lease("worker", 1)
    service.farm.jobs.succeed(lease, service.farm.blobs.put(data), {})
    return job.id, data


def test_artifact_whole_and_by_range(service, finished):
    job_id, data = finished
    http, path = service.http(), f"/v1/jobs/{job_id}/artifact"
    answer = http.get(path)
    assert answer.content == data
    assert answer.headers["ETag"] == f'"{hashlib.sha256(data).hexdigest()}"'
    assert answer.headers["Content-Length"] == str(len(data))
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{job_id}.farrier"'
    head = http.head(path)
    assert head.content == b""
    assert head.headers["Content-Length"] == str(len(data))
    ranges = {
        "bytes=0-0": data[:1],
        "bytes=999990-": data[999_990:],
        "bytes=500-1499": data[500:1500],
        "bytes=-17": data[-17:],
        "bytes=1000000-9999999": data[1_000_000:],
    }
    for text, expected in ranges.items():
        answer = http.get(path, headers={"Range": text})
        assert answer.status_code == 206, text
        assert answer.content == expected
        assert answer.headers["Content-Range"].endswith(f"/{len(data)}")
    stale = {"Range": "bytes=10-", "If-Range": '"another"'}
    assert http.get(path, headers=stale).content == data


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("bytes=1000003-", 416),
        ("bytes=9-5", 416),
        ("bytes=-0", 416),
        ("bytes=a-b", 400),
        ("bytes=0-1,5-6", 400),
        ("lines=1-2", 400),
        ("bytes=" + "9" * 40 + "-", 400),
    ],
)
def test_ranges_that_cannot_be_served(service, finished, text, status):
    answer = service.http().get(f"/v1/jobs/{finished[0]}/artifact", headers={"Range": text})
    assert answer.status_code == status
    assert answer.json()["code"] == "usage"
    if status == 416:
        assert answer.headers["Content-Range"] == "bytes */1000003"


def test_artifact_of_an_unfinished_job_is_409(service, model):
    http = service.http()
    job_id = submit(http, model).json()["id"]
    answer = http.get(f"/v1/jobs/{job_id}/artifact")
    assert answer.status_code == 409
    assert "queued" in answer.json()["detail"]
    http.post(f"/v1/jobs/{job_id}/cancel")
    answer = http.get(f"/v1/jobs/{job_id}/artifact")
    assert answer.status_code == 409
    assert "cancelled" in answer.json()["detail"]


def test_a_host_job_tunes_on_the_local_agent(service, model, device_side):
    http = service.http()
    request = {"options": {"target": TARGET, "trials": 8}, "wait_for_device": False}
    refused = submit(http, model, **request)
    assert refused.status_code == 503
    assert refused.json()["code"] == "no-device"
    assert "farrier device" in refused.json()["hint"]
    assert "--wait-for-device" in refused.json()["hint"]
    # The local device would not help here.
    refused = submit(http, model, options={"target": "x86-64-v2"})
    assert refused.status_code == 503
    assert "--wait-for-device" not in refused.json()["hint"]
    device_side.connect("local", dataclasses.asdict(describe()))
    job = submit(http, model, **request).json()
    (device,) = http.get("/v1/devices").json()["devices"]
    assert (device["id"], device["state"], device["device_class"]) == ("local", "idle", CLASS.id)
    (device_class,) = http.get("/v1/classes").json()["classes"]
    assert (device_class["id"], device_class["connected"], device_class["emulated"]) == (
        CLASS.id,
        1,
        False,
    )
    assert (job["target"], job["device_class"], job["device"]) == (TARGET, CLASS.id, None)
    bound = {"options": {"target": "device:local"}, "wait_for_device": False}
    job = submit(http, model, **bound).json()
    assert (job["target"], job["device_class"], job["device"]) == (
        "device:local",
        CLASS.id,
        "local",
    )
    assert submit(http, model, options={"target": "class:none"}).status_code == 404


def test_a_job_that_waits_for_a_device_says_so(service, model):
    http = service.http()
    job = submit(http, model).json()
    assert (job["state"], job["wait_for_device"], job["attempts"]) == ("queued", True, 0)
    assert submit(http, model, options=RUNS_NOTHING).json()["wait_for_device"] is False
    with http.stream("GET", f"/v1/jobs/{job['id']}/events") as answer:
        said = next(line for line in answer.iter_lines() if line.startswith("data:"))
    assert (
        f"no device for class:{CLASS.id} is connected"
        in json.loads(said.removeprefix("data: "))["reason"]
    )


@pytest.mark.long
def test_redis_away_is_503_until_it_is_back(installation, start_service):
    service = start_service(installation.settings)
    http = service.http()
    model = service.farm.blobs.put(b"model")
    job_id = submit(http, model).json()["id"]
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as watching:
        lines = watching.iter_lines()
        assert next(lines).startswith("retry")
        installation.kill_redis()
        for answer in (http.get("/readyz"), submit(http, model)):
            assert answer.status_code == 503
            assert answer.json()["code"] == "service"
        assert http.get("/healthz").status_code == 200
        upload = http.post("/v1/uploads", json={"size": 5, "sha256": "1" * 64})
        assert upload.status_code == 200  # An upload needs only the disk.
        list(lines)  # The stream ends, so that its watcher connects again.
    installation.start_redis()
    # A busy machine may take a moment to connect anew.
    wait_until(lambda: http.get(f"/v1/jobs/{job_id}").status_code == 200)
    assert http.get(f"/v1/jobs/{job_id}").json()["state"] == "queued"


def test_a_redis_that_stands_still_is_503(installation, start_service, monkeypatch):
    monkeypatch.setattr(serve, "PROMPT", dataclasses.replace(PROMPT, answer_s=0.2))
    http = start_service(installation.settings).http()
    with installation.redis_stands_still():
        for answer in (http.get("/v1/jobs"), http.get("/v1/devices"), http.get("/readyz")):
            assert (answer.status_code, answer.json()["code"]) == (503, "service")
            assert "valkey.sock does not answer" in answer.json()["detail"]
            assert "try again later" in answer.json()["hint"]
    for path in ("/v1/jobs", "/readyz"):  # On a busy machine, 0.2 s may be too short.
        wait_until(lambda path=path: http.get(path).status_code == 200)


def test_requests_that_wait_for_redis_delay_neither_health_nor_readiness(
    installation, start_service, monkeypatch
):
    monkeypatch.setattr(serve, "PROMPT", dataclasses.replace(PROMPT, answer_s=600.0))
    service = start_service(installation.settings)
    http, statuses = service.http(), []
    users = Users(service.settings.home)
    tokens = [users.add(name) for name in ("ann", "bob", "cat", "dan")]
    others = [dataclasses.replace(service, token=token).http() for token in tokens]

    def ask(client):
        statuses.append(client.get("/v1/jobs").status_code)

    # Of five users, for one alone has a fifth of the threads.
    clients = [http, *others]
    crowd = [threading.Thread(target=ask, args=(clients[n % 5],)) for n in range(50)]
    with installation.redis_stands_still():
        for thread in crowd:
            thread.start()
        wait_until(lambda: _pooled_threads() >= 40)
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 503
        assert statuses == []
    for thread in crowd:
        thread.join(20)
    assert statuses == [200] * len(crowd)


def _pooled_threads():
    return sum(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())


def test_a_job_names_engines_to_be_raced_with(service, model):
    http = service.http()
    first = submit(http, model, "k", against=["openvino", "onnxruntime", "openvino"]).json()
    assert first["against"] == ["openvino", "onnxruntime"]
    assert http.get(f"/v1/jobs/{first['id']}").json()["against"] == first["against"]
    assert service.farm.jobs.get(first["id"]).against == ("openvino", "onnxruntime")
    assert submit(http, model, "k", against=["openvino", "onnxruntime"]).json() == first
    assert submit(http, model, "k").status_code == 409
    assert submit(http, model, "l").json()["against"] == []
    assert submit(http, model, "m", against=["tvm"]).status_code == 400
    unverified = submit(http, model, "n", against=["openvino"], options=RUNS_NOTHING)
    assert (unverified.status_code, unverified.json()["code"]) == (400, "usage")


def test_jobs_are_searched_and_sorted(service, model):
    http = service.http()
    for name in ("beta", "Alpha", "gamma"):
        submit(http, model, name=name)
    page = http.get("/v1/jobs", params={"q": "ALPHA"}).json()
    assert ([job["name"] for job in page["jobs"]], page["complete"]) == (["Alpha"], True)
    query = {"sort": "name", "descending": "false", "limit": 2}
    first = http.get("/v1/jobs", params=query).json()
    rest = http.get("/v1/jobs", params={**query, "after": first["next"]}).json()
    assert [job["name"] for job in first["jobs"] + rest["jobs"]] == ["Alpha", "beta", "gamma"]
    assert (rest["next"], rest["complete"]) == ("", True)
    assert http.get("/v1/jobs", params={"sort": "colour"}).status_code == 400
    answer = http.get("/v1/jobs", params={"sort": "name", "after": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "usage")
    with service.client() as client:
        assert [job.name for job in client.jobs(search="gam")] == ["gamma"]
        names = [job.name for job in client.jobs(sort="name", descending=True)]
        assert names == ["gamma", "beta", "Alpha"]
