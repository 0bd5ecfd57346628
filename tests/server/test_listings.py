"""Listings over HTTP: of a job that a worker has compiled, and of files that are made to hurt."""

from __future__ import annotations

import io
import json
import struct
import zlib

import pytest

from bench.models import build
from farrier.errors import ConflictError, NotFoundError
from farrier.listing import archive
from farrier.options import CompileOptions
from tests.here import TARGET
from tests.server.test_inspections import worker  # noqa: F401, a fixture


@pytest.fixture
def compiled(service) -> str:
    """The id of a job that has an artifact, which nobody reads."""
    jobs, blobs = service.farm.jobs, service.farm.blobs
    job = jobs.submit(blobs.put(b"m"), CompileOptions(target=TARGET, verify=False))
    jobs.succeed(jobs.lease("w", 0.0), blobs.put(b"compiled"), {}, 8)
    return job.id


@pytest.mark.long
def test_the_kernels_of_a_job(service, worker):  # noqa: F811
    http = service.http()
    worker()
    with service.client() as client:
        model = build("resnet18", classes=10)
        job = client.submit(model, target=TARGET, verify=False)
        client.wait(job.id)
        path = f"/v1/jobs/{job.id}/listing"
        assert set(http.get(path).json().values()) == {None}
        listing = client.listing(job.id)
        assert listing == client.listing(job.id)
        assert http.post(path).status_code == 200
        assert http.get(path).json()["state"] == "succeeded"
        assert listing["is_same"] is True
        for kernel in (listing["kernels"][0], listing["kernels"][-1]):
            texts = client.kernel_texts(job.id, kernel["id"])
            assert set(texts) == {"schedule", "loops", "llvm", "assembly", "timeline"}
            assert kernel["symbol"] in texts["llvm"]
            assert not texts["timeline"]
        assert len(listing["graph"]["nodes"]) > 20
        with pytest.raises(NotFoundError, match="does not contain the kernel 9999"):
            client.kernel_texts(job.id, 9999)
        listed = http.get("/v1/jobs", params={"kind": "list"}).json()["jobs"]
        assert [listed_job["kind"] for listed_job in listed] == ["list"]
        client.delete(job.id)
        assert http.get(path).status_code == 404
        assert http.get("/v1/jobs", params={"kind": "list"}).json()["jobs"] == []


def test_what_is_not_compiled_is_not_listed(service):
    jobs, blobs = service.farm.jobs, service.farm.blobs
    job = jobs.submit(blobs.put(b"m"), CompileOptions(target=TARGET, verify=False))
    with service.client() as client, pytest.raises(ConflictError, match="is queued"):
        client.listing(job.id)
    http = service.http()
    assert http.post("/v1/jobs/none/listing").status_code == 404
    assert http.get("/v1/jobs/none/listing/kernels/0").status_code == 404
    assert http.get(f"/v1/jobs/{job.id}/listing/kernels/-1").status_code == 400


KERNEL = {
    "id": 0,
    "task": "t",
    "name": "<b>\u202e",
    "symbol": "s",
    "rule": "r",
    "source": "default",
    "decisions": {"k": 1},
    "origin": "",
    "slow": "",
    "calls": 1,
    "share": 1,
    "us": 1.5,
    "predicted_us": 1.5,
    "measured_us": None,
    "flops": 5,
    "bytes": 7,
    "roofline": {"peak_gflops": 1.0, "bandwidth_gbs": 2.0, "intensity": 3.0, "achieved_gflops": 0},
}
NODE = {"id": 0, "kernel": 0, "op": "o", "name": "n", "dtype": "f32", "shape": [1, "n"]}
GOOD = {
    "is_same": True,
    "target": "t",
    "sizes": {},
    "kernels": [KERNEL],
    "graph": {"nodes": [NODE], "edges": [[0, 0]], "left_out": 0},
}


def _file(listing, texts=({"llvm": "text"},)) -> bytes:
    buffer = io.BytesIO()
    archive.write(buffer, listing, [zlib.compress(json.dumps(text).encode()) for text in texts])
    return buffer.getvalue()


def _bomb() -> bytes:
    data = zlib.compress(b" " * (1 << 28), 9)
    return b"farrier-listing1" + struct.pack("<Q", len(data)) + data


@pytest.mark.parametrize(
    ("content", "status", "of_texts"),
    [
        (_file(GOOD), 200, 200),
        (_file(GOOD | {"newer": 1}, [{"newer": "", "llvm": "text"}]), 200, 200),
        (_file(GOOD | {"kernels": [KERNEL | {"us": float("nan")}]}), 503, 200),
        (_file(GOOD | {"kernels": [KERNEL | {"name": "n" * 2000}]}), 503, 200),
        (_file(GOOD | {"kernels": [KERNEL | {"flops": 1 << 90}]}), 503, 200),
        (_file(GOOD | {"graph": {"nodes": [], "edges": [[0]], "left_out": 0}}), 503, 200),
        (_file([]), 503, 200),
        (_file(GOOD, [{"llvm": 5}]), 200, 503),
        (_file(GOOD, [["llvm"]]), 200, 503),
        (_file(GOOD, [{"llvm": "x" * (3 << 20)}]), 200, 503),
        (_file(GOOD, []), 200, 404),
        (_bomb(), 503, 503),
        (b"PK\x03\x04", 503, 503),
        (b"", 503, 503),
    ],
)
def test_the_file_is_held_to_its_form(service, compiled, content, status, of_texts):
    """Whoever took over a job's process wrote it."""
    farm, http = service.farm, service.http()
    farm.jobs.list_kernels(farm.jobs.get(compiled))
    farm.jobs.succeed(farm.jobs.lease_prepared("w"), farm.blobs.put(content), {})
    answer = http.get(f"/v1/jobs/{compiled}/listing")
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["listing"] == GOOD
    else:
        assert "request it again" in answer.json()["hint"]
    texts = http.get(f"/v1/jobs/{compiled}/listing/kernels/0")
    assert texts.status_code == of_texts, texts.text[:300]
    if of_texts == 200:
        empty = {"schedule": "", "loops": "", "assembly": "", "timeline": ""}
        assert texts.json() == {"llvm": "text", **empty}
    assert http.get(f"/v1/jobs/{compiled}").json()["state"] == "succeeded"
