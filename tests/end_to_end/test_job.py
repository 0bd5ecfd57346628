"""A model's whole way: uploaded, tuned on the local device, verified, fetched, run."""

from __future__ import annotations

import httpx
import numpy as np
import onnx
import onnxruntime
import pytest

import farrier
from farrier.errors import (
    AuthenticationError,
    CancelledError,
    InvalidModelError,
    UsageError,
)
from farrier.progress import TasksFound, TrialsMeasured, Verified

SHAPE = (2, 3, 13, 17)


def _assert_equals_onnx_runtime(artifact_path, model):
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(farrier.load(artifact_path).run({"x": x})["y"], expected, atol=1e-5)


def test_a_tuned_model_is_what_onnx_runtime_computes(up, model, tmp_path):
    with up.client() as client:
        job = client.submit(model, shapes={"x": SHAPE}, trials=24)
        seen = []
        done = client.wait(job.id, listener=seen.append)
        path = client.fetch(job.id, tmp_path / "net.farrier")
        assert client.devices()[0].measured > 0
    assert done.state == "succeeded"
    assert {TasksFound, TrialsMeasured, Verified} <= {type(update) for update in seen}
    (verified,) = [update for update in seen if isinstance(update, Verified)]
    assert verified.device == "local"
    assert verified.max_error < 1e-5
    assert farrier.load(path).report["verification"]["reference"].startswith("ONNX Runtime")
    assert done.report["verification"]["latency_ms"]["median"] > 0
    _assert_equals_onnx_runtime(path, model)


@pytest.mark.long
def test_an_artifact_is_there_at_once_and_a_user_goes_back_to_it(up, model, tmp_path):
    command_words = ("submit", model, "--shape", "x=2,3,13,17", "--now")
    refused = up.command(*command_words)
    assert refused.returncode == 2
    assert "neither trials nor a budget" in refused.stderr
    submitted = up.command(*command_words, "--budget", "2s", "--watch")
    assert submitted.returncode == 0, submitted.stderr
    assert "version 1: " in submitted.stderr
    job = submitted.stdout.split("\n", 1)[0]
    assert f"{job} succeeded" in submitted.stdout
    assert "in use" in up.command("versions", job).stdout
    back = up.command("rollback", job, "--to", "1")
    assert back.returncode == 0, back.stderr
    assert "in use, kept" in back.stdout
    for words in ((), ("--version", "1")):
        fetched = up.command("fetch", job, *words, "-o", tmp_path / "first.farrier")
        assert fetched.returncode == 0, fetched.stderr
        _assert_equals_onnx_runtime(tmp_path / "first.farrier", model)
    assert "no version 99" in up.command("fetch", job, "--version", "99").stderr


@pytest.mark.long
def test_the_command_needs_no_token_on_the_server_s_machine(up, model, tmp_path):
    submitted = up.command("submit", model, "--shape", "x=2,3,13,17", "--budget", "1s", "--watch")
    assert submitted.returncode == 0, submitted.stderr
    job, said = submitted.stdout.split("\n", 1)
    assert said.strip() == f"{job} succeeded"
    assert "verified on local" in submitted.stderr
    listed = up.command("jobs").stdout
    assert job in listed
    assert "succeeded" in listed
    fetched = up.command("fetch", job, "-o", tmp_path / "a.farrier")
    assert fetched.stdout.strip() == str(tmp_path / "a.farrier")
    _assert_equals_onnx_runtime(tmp_path / "a.farrier", model)
    assert "local" in up.command("devices").stdout
    assert up.command("devices", "release", "local").stdout.startswith("local ")
    again = up.command("cancel", job)
    assert (again.returncode, "succeeded" in again.stderr) == (15, True)


def test_the_command_takes_every_option_of_a_compilation(up, model):
    shape = ("--shape", "x=2,3,13,17")
    submitted = up.command("submit", model, *shape, "--seed", "7", "--no-verify")
    assert submitted.returncode == 0, submitted.stderr
    with up.client() as client:
        options = client.job(submitted.stdout.strip()).options
    assert (options["seed"], options["verify"]) == (7, False)


@pytest.mark.long
def test_a_model_with_a_data_file_needs_no_option_for_it(up, model, tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    exported = folder / "net.onnx"
    onnx.save_model(
        onnx.load(model),
        exported,
        save_as_external_data=True,
        location="net.onnx.data",
        size_threshold=0,
    )
    submitted = up.command("submit", exported, "--shape", "x=2,3,13,17", "--watch")
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.split()[0]
    assert "verified on local" in submitted.stderr
    fetched = up.command("fetch", job, "-o", tmp_path / "a.farrier")
    assert fetched.returncode == 0, fetched.stderr
    _assert_equals_onnx_runtime(tmp_path / "a.farrier", exported)
    verified = farrier.load(tmp_path / "a.farrier").report["verification"]
    assert verified["reference"].startswith("ONNX Runtime")
    (folder / "net.onnx.data").unlink()
    refused = up.command("submit", exported)
    assert (refused.returncode, str(folder / "net.onnx.data") in refused.stderr) == (3, True)


def test_a_queued_or_running_job_is_cancelled(up, model):
    with up.client() as client:
        job = client.submit(model, shapes={"x": SHAPE}, budget_s=600)
        assert client.cancel(job.id).state == "cancelled"
        with pytest.raises(CancelledError):
            client.wait(job.id)
    watched = up.command("watch", job.id)
    assert (watched.returncode, "was cancelled" in watched.stderr) == (14, True)
    fetched = up.command("fetch", job.id)
    assert (fetched.returncode, "has no artifact" in fetched.stderr) == (15, True)


@pytest.mark.parametrize(
    ("data", "shapes", "error"),
    [(b"hello", None, InvalidModelError), (None, {"x": (1, 2)}, UsageError)],
)
def test_a_bad_model_fails_its_job_with_the_reason(up, model, data, shapes, error):
    with up.client() as client:
        job = client.submit(model if data is None else data, shapes=shapes)
        with pytest.raises(error):
            client.wait(job.id)
        problem = client.job(job.id).error
    assert problem["code"] == error.code
    assert problem["status"] == error.http_status


def test_a_wrong_token(up, model, monkeypatch):
    monkeypatch.setitem(up.environment, "FARRIER_TOKEN", "wrong")
    done = up.command("submit", model)
    assert (done.returncode, "the token is wrong" in done.stderr) == (
        AuthenticationError.exit_code,
        True,
    )
    answer = httpx.get(f"{up.url}/v1/jobs", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_job(up):
    for verb in ("watch", "fetch", "cancel"):
        done = up.command(verb, "nothing")
        assert (done.returncode, "nothing" in done.stderr) == (12, True), verb


def test_a_model_that_is_too_large_is_not_even_read(up, tmp_path):
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.truncate(1 << 40)  # A sparse file; hashing it would take longer than the test may.
    done = up.command("submit", tmp_path / "huge.onnx")
    assert (done.returncode, "more than 2 GiB" in done.stderr) == (3, True)
