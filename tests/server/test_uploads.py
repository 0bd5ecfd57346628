"""Upload against a real server: resumed, refused, damaged, cut."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import urllib.parse

import pytest

from tests.here import TARGET
from tests.waiting import wait_until


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def begin(http, data: bytes) -> dict:
    answer = http.post("/v1/uploads", json={"size": len(data), "sha256": digest(data)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def patch(http, upload: dict, offset: int, body: bytes):
    return http.patch(
        f"/v1/uploads/{upload['id']}", content=body, headers={"Upload-Offset": str(offset)}
    )


@pytest.fixture
def model() -> bytes:
    return random.Random(5).randbytes(9_000_011)


def test_upload_in_pieces_ends_in_the_blob_store(service, model):
    http = service.http()
    upload = begin(http, model)
    assert upload["offset"] == 0
    assert not upload["complete"]
    answer = patch(http, upload, 0, model[:1_000_003])
    assert answer.json()["offset"] == 1_000_003
    head = http.head(f"/v1/uploads/{upload['id']}")
    assert head.headers["Upload-Offset"] == "1000003"
    assert head.headers["Upload-Length"] == str(len(model))
    answer = patch(http, upload, 1_000_003, model[1_000_003:])
    assert answer.json() == {
        "id": None,
        "size": len(model),
        "offset": len(model),
        "sha256": digest(model),
        "complete": True,
    }
    assert service.farm.blobs.verified(digest(model)).read_bytes() == model


def test_known_model_is_complete_at_once(service, model):
    service.farm.blobs.put(model)
    upload = begin(service.http(), model)
    assert upload["complete"]
    assert upload["id"] is None


def test_known_model_is_not_swept_once_it_was_told_complete(service, model):
    blobs = service.farm.blobs
    sha256 = blobs.put(model)
    http = service.http()
    for use in (
        lambda: begin(http, model),
        lambda: http.post(
            "/v1/jobs",
            json={
                "model": sha256,
                "wait_for_device": True,
                "options": {"target": TARGET},
            },
        ),
    ):
        os.utime(blobs.path(sha256), (0, 0))
        use()
        blobs.sweep(lambda _: False, older_than_s=3600)  # A sweep had read the references before.
        assert blobs.has(sha256)


def test_wrong_offset_is_answered_with_the_right_one(service, model):
    http = service.http()
    upload = begin(http, model)
    patch(http, upload, 0, model[:100])
    answer = patch(http, upload, 50, model[50:200])
    assert answer.status_code == 409
    assert answer.headers["Upload-Offset"] == "100"
    assert answer.json()["code"] == "conflict"
    assert http.get(f"/v1/uploads/{upload['id']}").json()["offset"] == 100


def test_wrong_digest_is_refused_and_forgotten(service, model):
    http = service.http()
    upload = begin(http, model[:1000])
    answer = patch(http, upload, 0, model[1000:2000])
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid-model"
    assert not service.farm.blobs.has(digest(model[:1000]))
    assert not service.farm.blobs.has(digest(model[1000:2000]))
    assert http.head(f"/v1/uploads/{upload['id']}").status_code == 404


def test_empty_model_is_refused(service):
    answer = service.http().post("/v1/uploads", json={"size": 0, "sha256": digest(b"")})
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid-model"


def test_too_large_a_file_is_refused_before_a_byte(service):
    limit = service.settings.max_upload_bytes
    http = service.http()
    answer = http.post("/v1/uploads", json={"size": limit + 1, "sha256": "0" * 64})
    assert answer.status_code == 413
    assert answer.json()["code"] == "invalid-model"
    assert str(limit) in answer.json()["detail"]
    assert http.post("/v1/uploads", json={"size": 3 << 30, "sha256": "0" * 64}).status_code == 200


def test_more_bytes_than_announced_are_refused(service, model):
    http = service.http()
    upload = begin(http, model[:1000])
    assert patch(http, upload, 0, model[:1001]).status_code == 400
    assert http.get(f"/v1/uploads/{upload['id']}").json()["offset"] == 0
    chunked = http.patch(
        f"/v1/uploads/{upload['id']}",
        # Without a Content-Length, the server cannot refuse it beforehand.
        content=iter([model[:999], model[999:1500]]),
        headers={"Upload-Offset": "0"},
    )
    assert chunked.status_code == 400
    assert not service.farm.blobs.has(digest(model[:1000]))


def test_full_disk_is_507(farm_settings, start_service, model):
    import dataclasses

    settings = dataclasses.replace(farm_settings, min_free_bytes=1 << 60)
    http = start_service(settings).http()
    answer = http.post("/v1/uploads", json={"size": len(model), "sha256": digest(model)})
    assert answer.status_code == 507
    assert answer.json()["code"] == "storage"


def test_cut_connection_keeps_what_arrived(service, model):
    http = service.http()
    upload = begin(http, model)
    where = urllib.parse.urlsplit(service.url)
    head = (
        f"PATCH /v1/uploads/{upload['id']} HTTP/1.1\r\nHost: {where.netloc}\r\n"
        f"Authorization: Bearer {service.token}\r\nUpload-Offset: 0\r\n"
        f"Content-Length: {len(model)}\r\n\r\n"
    )
    with socket.create_connection((where.hostname, where.port)) as link:
        link.sendall(head.encode() + model[:5_000_000])
    place = f"/v1/uploads/{upload['id']}"
    wait_until(lambda: http.get(place).json()["offset"] == 5_000_000)
    assert patch(http, upload, 5_000_000, model[5_000_000:]).json()["complete"]
    assert service.farm.blobs.verified(digest(model)).read_bytes() == model


def test_uploads_are_told_apart_and_unknown_ones_are_404(service):
    http = service.http()
    for upload_id in ("nothing", "..%2f..%2fuser.token", "x" * 90):
        answer = http.get(f"/v1/uploads/{upload_id}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"size": 10}',
        b'{"size": "10", "sha256": "' + b"0" * 64 + b'"}',
        b'{"size": 10, "sha256": "../../etc/passwd"}',
        b'{"size": -1, "sha256": "' + b"0" * 64 + b'"}',
        b'{"size": 1, "x": 1, "sha256": "' + b"0" * 64 + b'"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_malformed_announcements_are_400(service, body):
    answer = service.http().post(
        "/v1/uploads", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    assert answer.json()["code"] == "usage"
