"""Models of several files over REST: made of uploads, or refused with the reason."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

import pytest

from tests.here import TARGET

WAITING = {"wait_for_device": True, "options": {"target": TARGET}}
MESSAGE, DATA = b"a message", b"weights " * 1000


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def body_of(files: dict[str, bytes], message: bytes = MESSAGE) -> dict:
    named = {name: {"sha256": digest(data), "size": len(data)} for name, data in files.items()}
    return {"message": digest(message), "files": named}


@pytest.fixture
def stored(service):
    """The service, which has the blobs of a model."""
    for data in (MESSAGE, DATA):
        service.farm.blobs.put(data)
    return service


def test_a_model_of_two_files(stored):
    http = stored.http()
    body = body_of({"m.onnx.data": DATA})
    answer = http.post("/v1/models", json=body)
    assert answer.status_code == 201, answer.text
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    assert answer.json() == {"id": digest(canonical), **body}
    assert http.post("/v1/models", json=body).json() == answer.json()
    assert http.get(f"/v1/models/{digest(canonical)}").json() == answer.json()
    job = http.post("/v1/jobs", json={"model": digest(canonical), **WAITING})
    assert job.status_code == 201, job.text
    assert job.json()["model"] == digest(canonical)


def test_a_model_of_one_file_is_named_by_its_digest(stored):
    http = stored.http()
    whole = {"id": digest(MESSAGE), "message": digest(MESSAGE), "files": {}}
    assert http.post("/v1/models", json={"message": digest(MESSAGE)}).json() == whole
    assert http.get(f"/v1/models/{digest(MESSAGE)}").json() == whole
    job = http.post("/v1/jobs", json={"model": digest(MESSAGE), **WAITING})
    assert job.status_code == 201


def test_equal_files_under_two_names_are_one_blob(stored):
    http = stored.http()
    answer = http.post("/v1/models", json=body_of({"a": DATA, "b/c": DATA, "d": MESSAGE}))
    assert answer.status_code == 201
    assert set(answer.json()["files"]) == {"a", "b/c", "d"}


def test_a_model_keeps_its_blobs(stored):
    farm = stored.farm
    stored.http().post("/v1/models", json=body_of({"m.onnx.data": DATA}))
    for data in (MESSAGE, DATA):
        assert farm.references.are_there(digest(data))
        os.utime(farm.blobs.path(digest(data)), (0, 0))
    farm.collect_garbage()
    assert all(farm.blobs.has(digest(data)) for data in (MESSAGE, DATA))


def test_missing_blobs_are_named(stored):
    http, farm = stored.http(), stored.farm
    missing = {f"part{n}": b"part %d" % n for n in range(7)}
    answer = http.post("/v1/models", json=body_of({"m.onnx.data": DATA, **missing}))
    assert answer.status_code == 409
    assert answer.json()["code"] == "conflict"
    assert f"the data file 'part0' ({digest(b'part 0')})" in answer.json()["detail"]
    assert answer.json()["detail"].endswith("and 2 more")
    assert "m.onnx.data" not in answer.json()["detail"]
    assert "POST /v1/uploads" in answer.json()["hint"]
    answer = http.post("/v1/models", json=body_of({"m.onnx.data": DATA}, b"another"))
    assert (answer.status_code, "the model's message" in answer.text) == (409, True)
    assert not farm.references.are_there(digest(DATA))


def test_a_file_of_another_size_is_refused(stored):
    body = body_of({"m.onnx.data": DATA})
    body["files"]["m.onnx.data"]["size"] += 1
    answer = stored.http().post("/v1/models", json=body)
    assert answer.status_code == 422
    assert "'m.onnx.data' has 8000 bytes, but the manifest states 8001" in answer.json()["detail"]
    assert not stored.farm.references.are_there(digest(DATA))


def test_locations_that_no_model_may_have_are_refused(stored):
    http = stored.http()
    outside = ["/etc/passwd", "../user.token", "a/../../b"]
    odd = ["", "a\\b", "C:data", "folder/", "a\nb", "a\x7fb", "a\u2028b"]
    for location in outside + odd:
        answer = http.post("/v1/models", json=body_of({location: DATA}))
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-model"), location
        assert f"data file {location!r}, which" in answer.json()["detail"]
    answer = http.post("/v1/models", json=body_of({"x" * 501: DATA}))
    assert (answer.status_code, "500 characters" in answer.text) == (422, True)
    assert "x" * 101 not in answer.text
    assert not stored.farm.references.are_there(digest(DATA))


def test_too_many_files_are_refused(stored):
    answer = stored.http().post("/v1/models", json=body_of({f"{n}": DATA for n in range(4001)}))
    assert (answer.status_code, "4001 data files" in answer.text) == (422, True)


def test_the_limit_is_of_all_files_together(farm_settings, start_service):
    service = start_service(dataclasses.replace(farm_settings, max_upload_bytes=15_000))
    http = service.http()
    other = bytes(8_000)
    for data in (MESSAGE, DATA, other):
        service.farm.blobs.put(data)
    answer = http.post("/v1/models", json=body_of({"a": DATA, "b": other}))
    assert (answer.status_code, answer.json()["code"]) == (413, "invalid-model")
    assert "FARRIER_MAX_UPLOAD_BYTES" in answer.json()["hint"]
    assert http.post("/v1/models", json=body_of({"a": DATA, "b": DATA})).status_code == 201


def test_malformed_manifests_are_400_and_name_the_field(stored):
    http = stored.http()
    file = ("files", "m.onnx.data")
    for path, value in [
        (("message",), None),
        (("message",), "5E" * 32),
        (("message",), "../../etc/passwd"),
        (("files",), ["m.onnx.data"]),
        (file, digest(DATA)),
        ((*file, "sha256"), "ab"),
        ((*file, "sha256"), 7),
        ((*file, "size"), -1),
        ((*file, "size"), "8000"),
        ((*file, "size"), 8000.5),
        ((*file, "path"), "/etc/passwd"),
        (("name",), "m"),
    ]:
        body = body_of({"m.onnx.data": DATA})
        *folders, last = path
        inner = body
        for folder in folders:
            inner = inner[folder]
        inner[last] = value
        answer = http.post("/v1/models", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "usage"), path
        assert ".".join(path) in answer.json()["detail"]


def test_unknown_models_are_404(stored):
    http = stored.http()
    assert http.get(f"/v1/models/{'0' * 64}").status_code == 404
    assert http.get("/v1/models/nothing").status_code == 400
    answer = http.post("/v1/jobs", json={"model": "0" * 64, **WAITING})
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_a_model_that_lost_a_blob_is_named_when_it_is_submitted(stored):
    http = stored.http()
    model = http.post("/v1/models", json=body_of({"m.onnx.data": DATA})).json()["id"]
    stored.farm.blobs.remove(digest(DATA), lambda _: False)
    answer = http.post("/v1/jobs", json={"model": model, **WAITING})
    assert answer.status_code == 404
    assert "'m.onnx.data'" in answer.json()["detail"]
