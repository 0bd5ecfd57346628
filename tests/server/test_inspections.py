"""Inspections over HTTP, with a worker behind: what the API says of models that it never reads."""

from __future__ import annotations

import json
import sys
import threading

import pytest
from onnx import helper

from bench.models import build
from farrier.errors import CompilerError
from farrier.frontends.onnx.importer import inspection
from farrier_farm.jobs.kinds import JobKind
from farrier_farm.leases.states import State
from farrier_server.api.inspections import InspectionDocument
from farrier_worker.supervisor import Supervisor
from tests.fuzz.hostile import HOSTILE, model_of


@pytest.fixture
def worker(service):
    """A worker with the real process of a job, once it is called."""
    started = []

    def start(**options):
        supervisor = Supervisor(service.farm, name="w", **options)
        started.append((supervisor, threading.Thread(target=supervisor.run)))
        started[-1][1].start()

    yield start
    for supervisor, thread in started:
        supervisor.drain()
        supervisor.drain()
        thread.join(30)
        assert not thread.is_alive()


def test_a_model_is_inspected_once(service, worker):
    http = service.http()
    model = service.farm.blobs.put(build("resnet18", classes=10, batch="n"))
    path = f"/v1/models/{model}/inspection"
    assert (http.get(path).status_code, http.get(path).json()["code"]) == (404, "not-found")
    asked = http.post(path)
    assert (asked.status_code, asked.json()["state"]) == (201, "queued")
    assert http.post(path).json()["job"] == asked.json()["job"]
    waiting = http.get(path).json()
    assert (waiting["state"], waiting["inspection"]) == ("queued", None)
    worker()
    with service.client() as client:
        inspected = client.inspection(build("resnet18", classes=10, batch="n"))
    again = http.post(path)
    assert (again.status_code, again.json()["job"]) == (200, asked.json()["job"])
    assert again.json()["state"] == "succeeded"
    assert http.get(path).json()["inspection"] == inspected
    assert inspected["inputs"] == [{"name": "x", "dtype": "f32", "dims": ["n", 3, 224, 224]}]
    assert inspected["open_dims"] == [{"name": "n", "low": 0, "high": 65536, "typical": 1}]
    assert inspected["problems"] == []
    assert len(inspected["graph"]["nodes"]) > 60


def test_it_is_a_job_of_its_own_kind(service):
    http = service.http()
    model = service.farm.blobs.put(b"m")
    job_id = http.post(f"/v1/models/{model}/inspection").json()["job"]
    job = http.get(f"/v1/jobs/{job_id}").json()
    assert (job["kind"], job["model"], job["state"]) == ("inspect", model, "queued")
    assert http.get("/v1/jobs").json()["jobs"] == []
    listed = http.get("/v1/jobs", params={"kind": "inspect"}).json()["jobs"]
    assert [listed_job["id"] for listed_job in listed] == [job_id]
    assert http.get("/v1/jobs", params={"kind": "guess"}).status_code == 400
    assert http.post(f"/v1/jobs/{job_id}/cancel").json()["state"] == "cancelled"
    again = http.post(f"/v1/models/{model}/inspection")
    assert (again.status_code, again.json()["job"] != job_id) == (201, True)
    assert http.delete(f"/v1/jobs/{again.json()['job']}").status_code == 204
    assert http.get(f"/v1/models/{model}/inspection").status_code == 404


def test_a_model_that_is_not_here_is_not_inspected(service):
    http = service.http()
    assert http.post(f"/v1/models/{'5e' * 32}/inspection").status_code == 404
    assert http.post("/v1/models/nonsense/inspection").status_code == 400


def test_the_process_that_crashes_is_an_error_of_the_inspection(service, worker, tmp_path):
    crash = tmp_path / "crash.py"
    crash.write_text("import os; os.abort()")
    worker(command=[sys.executable, str(crash)])
    with service.client() as client, pytest.raises(CompilerError, match="SIGABRT"):
        client.inspection(b"m")
    [job] = service.farm.jobs.list(kind=JobKind.INSPECT)[0]
    shown = service.http().get(f"/v1/models/{job.model}/inspection").json()
    assert (shown["state"], shown["error"]["code"]) == ("dead", "dead")
    assert "farrier inspect" in shown["error"]["hint"]


HURTING = [
    "a loop of 2^60 trips that stacks",
    "messages nested 400 deep",
    "functions that double 40 times",
    "a tensor that claims terabytes",
    "an input of rank 5000",
    "a name with NUL",
    "a name of lines",
    "a name that is HTML",
    "a name that moves the cursor",
    "a name of a megabyte",
    "the same output 1000 times",
    "opset -1",
]


def _without_text() -> bytes:
    """Return an operator of a function whose name is not UTF-8 text: it is inlined after the checks
    of names."""
    body = helper.make_node("Warp", ["a"], ["b"])
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("local", "f", ["a"], ["b"], [body], opsets)
    call = helper.make_node("f", ["x"], ["y"], domain="local")
    return model_of([call], functions=[function]).replace(b"Warp", b"W\xff\x80p")


@pytest.mark.parametrize("name", [*HURTING, "an operator that is no text"])
def test_documents_on_models_that_are_made_to_hurt_have_their_form(name):
    data = HOSTILE[name]() if name in HURTING else _without_text()
    document = InspectionDocument.model_validate_json(inspection(data).to_json())
    assert document.problems or document.operators


GOOD = {
    "name": "m",
    "producer": "",
    "opset": 17,
    "inputs": [],
    "outputs": [],
    "parameters": {"count": 0, "bytes": 0},
    "operators": [],
    "open_dims": [],
    "preconditions": [],
    "states": [{"input": "past", "output": "present"}],
    "problems": [],
    "graph": {"nodes": [], "edges": [], "left_out": 0},
    "format": "ONNX",
}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (json.dumps(GOOD), 200),
        (json.dumps({**GOOD, "newer": 1}), 200),
        (json.dumps({**GOOD, "opset": -1}), 503),
        (json.dumps({**GOOD, "opset": "17"}), 503),
        (json.dumps({**GOOD, "name": "n" * 2000}), 503),
        (json.dumps({**GOOD, "operators": [GOOD]}), 503),
        (json.dumps({**GOOD, "graph": {"nodes": [], "edges": [[0, 1 << 40, ""]]}}), 503),
        (json.dumps({**GOOD, "preconditions": [""] * 2000}), 503),
        (json.dumps({**GOOD, "states": [{"input": "n" * 2000, "output": ""}]}), 503),
        ("[" * 100_000, 503),
        ("\x00", 503),
        (" " * (9 << 20), 503),
    ],
)
def test_the_document_is_held_to_its_schema(service, text, status):
    """Whoever took over a job's process wrote it."""
    farm, http = service.farm, service.http()
    model = farm.blobs.put(b"m")
    farm.jobs.inspect(model)
    farm.jobs.succeed(farm.jobs.lease_prepared("w"), farm.blobs.put(text.encode()), {})
    answer = http.get(f"/v1/models/{model}/inspection")
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["inspection"] == GOOD
        assert InspectionDocument.model_validate(GOOD)
    else:
        assert "request it again" in answer.json()["hint"]
        assert len(answer.text) < 1000
    assert farm.jobs.list(kind=JobKind.INSPECT)[0][0].state is State.SUCCEEDED
