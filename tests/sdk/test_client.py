"""The SDK against a real server: transfers that break, jobs that fail, servers that die."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import socket
import threading
import time
import urllib.parse

import httpx
import pytest

import farrier
from farrier import progress
from farrier.errors import (
    ArtifactError,
    AuthenticationError,
    CancelledError,
    CompilerError,
    ConflictError,
    InvalidModelError,
    NoDeviceError,
    NotFoundError,
    QueueFullError,
    ServiceError,
    StorageError,
    UnsupportedOperatorError,
    UsageError,
)
from farrier.sdk.client import Client, StateChanged
from farrier_device.describe import describe
from farrier_farm.leases import leases
from tests.waiting import wait_until

# An artifact that nobody signed: tests/artifact/test_older.py.
OLDER = pathlib.Path(__file__).parents[1] / "artifact" / "older" / "before-targets.farrier"


@pytest.fixture
def model(tmp_path) -> pathlib.Path:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(random.Random(11).randbytes(20_000_003))
    return path


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_upload_of_path_and_bytes(service, model):
    with service.client() as client:
        assert client.upload(model) == sha256(model)
        assert client.upload(str(model)) == sha256(model)
        assert client.upload(b"other bytes") == hashlib.sha256(b"other bytes").hexdigest()
    assert service.farm.blobs.verified(sha256(model)).read_bytes() == model.read_bytes()


def test_upload_goes_on_where_the_connection_broke(service, model, cut):
    proxy = cut(5_000_000, 12_000_000)
    with Client(proxy.url, service.token) as client:
        assert client.upload(model) == sha256(model)
    assert proxy.connections >= 3
    assert service.farm.blobs.verified(sha256(model)).read_bytes() == model.read_bytes()


def test_refused_models(service, farm_settings, start_service, tmp_path):
    import dataclasses

    with service.client() as client:
        with pytest.raises(InvalidModelError, match="empty"):
            client.upload(b"")
        with pytest.raises(UsageError, match=r"no such file: .*missing\.onnx"):
            client.upload(tmp_path / "missing.onnx")
        with pytest.raises(UsageError, match="is a directory"):
            client.upload(tmp_path)
    small = start_service(dataclasses.replace(farm_settings, max_upload_bytes=1000))
    with small.client() as client, pytest.raises(InvalidModelError, match="1001 bytes"):
        client.upload(bytes(1001))
    full = start_service(dataclasses.replace(farm_settings, min_free_bytes=1 << 60))
    with full.client() as client, pytest.raises(StorageError):
        client.upload(b"some model")


def test_submit_and_look(service, model):
    with service.client() as client:
        job = client.submit(model, shapes={"x": (1, 3)}, threads=2, name="a <b> ../c", verify=False)
        assert job.state == "queued"
        assert job.name == "a <b> ../c"
        assert job.model == sha256(model)
        assert job.options["shapes"] == {"x": [1, 3]}
        assert job.options["threads"] == 2
        assert not job.final
        assert client.job(job.id) == job
        assert client.submit(model, verify=False).name == "tiny"
        with pytest.raises(NotFoundError, match="nothing"):
            client.job("nothing")
        with pytest.raises(NotFoundError):
            list(client.watch("nothing"))
        with pytest.raises(UsageError, match="target"):
            client.submit(model, target="z80")


def test_jobs_are_paged(service):
    with service.client() as client:
        ids = [client.submit(b"model", seed=seed, verify=False).id for seed in range(7)]
        assert [job.id for job in client.jobs()] == ids[::-1]
        assert [job.id for job in client.jobs(limit=3)] == ids[:3:-1]
        client.cancel(ids[2])
        assert [job.id for job in client.jobs(state="cancelled")] == [ids[2]]
        with pytest.raises(UsageError, match="state"):
            list(client.jobs(state="happy"))


def test_idempotency(service):
    with service.client() as client:
        first = client.submit(b"model", idempotency_key="k", verify=False)
        assert client.submit(b"model", idempotency_key="k", verify=False) == first
        with pytest.raises(ConflictError, match="'k'"):
            client.submit(b"model", idempotency_key="k", seed=1, verify=False)
        assert len(list(client.jobs())) == 1


def test_what_runs_code_needs_a_device_or_patience(service, device_side):
    with service.client() as client:
        for needs in ({"trials": 10}, {"trials": 10, "verify": False}, {}):
            with pytest.raises(NoDeviceError, match="no device"):
                client.submit(b"model", **needs)
        assert list(client.jobs()) == []
        assert client.submit(b"model", verify=False).state == "queued"
        assert client.submit(b"model", trials=10, wait_for_device=True).state == "queued"
        device_side.connect("board", dataclasses.asdict(describe()))
        assert client.submit(b"model", trials=11).state == "queued"
        (device,) = client.devices()
        assert (device.id, device.state, device.health) == ("board", "idle", {})
        assert device.description["arch"] == describe().arch


def test_a_device_is_released_from_quarantine(service, device_side):
    with service.client() as client:
        with pytest.raises(NotFoundError, match="board"):
            client.release("board")
        faults = service.settings.quarantine_faults
        session = device_side.connect("board", dataclasses.asdict(describe()))
        device_side.heartbeat("board", session, health={"celsius": 61.5})
        assert client.devices()[0].health == {"celsius": 61.5}
        for fence in range(faults):
            device_side.settle("board", session, "batch", fence, fault=True)
        (device,) = client.devices()
        assert (device.state, device.faults) == ("quarantined", faults)
        assert client.release("board").state == "idle"


def test_watch_tells_everything_once_in_order(service, cut):
    events = [progress.StageStarted("import"), progress.TasksFound(3, 5)] + [
        progress.TrialsMeasured(n, 90, 10.0 / n, None, f"task {n}") for n in range(1, 60)
    ]
    proxy = cut(4_000, 3_000, 2_000)
    with service.client() as direct:
        job = direct.submit(b"model", verify=False)
    with Client(proxy.url, service.token, patience_s=20) as client:
        lease = service.farm.jobs.lease("worker", 1)

        def work() -> None:
            for number, event in enumerate(events, 1):
                service.farm.jobs.say(lease, number, event)
                time.sleep(0.02)
            artifact = service.farm.blobs.put(b"artifact")
            service.farm.jobs.succeed(lease, artifact, {"latency_ms": 1.5})

        worker = threading.Thread(target=work)
        worker.start()
        updates = list(client.watch(job.id))
        worker.join()
        assert [u for u in updates if not isinstance(u, StateChanged)] == events
        states = [u.state for u in updates if isinstance(u, StateChanged)]
        assert states == ["queued", "running", "succeeded"]
        assert proxy.connections >= 4
        done = client.wait(job.id)
        assert done.state == "succeeded"
        assert done.report == {"latency_ms": 1.5}
        assert (done.trials, done.planned) == (59, 90)


def test_failed_job_raises_its_own_error(service):
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        lease = service.farm.jobs.lease("worker", 1)
        error = UnsupportedOperatorError("unknown operator Foo", hint="remove Foo")
        service.farm.jobs.fail(lease, error)
        with pytest.raises(UnsupportedOperatorError, match="Foo") as raised:
            client.wait(job.id)
        assert raised.value.hint == "remove Foo"
        assert client.job(job.id).error["status"] == 422
        *_, last = client.watch(job.id)
        assert last.error["code"] == "unsupported-operator"
        with pytest.raises(ConflictError, match="failed"):
            client.fetch(job.id, "never.farrier")


def test_job_that_crashes_its_worker_is_dead(service):
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        for _ in range(service.settings.job_crashes):
            lease = service.farm.jobs.lease("worker", 1)
            service.farm.jobs.give_back(lease, crashed=True, reason="signal 11")
        with pytest.raises(CompilerError, match="signal 11"):
            client.wait(job.id)
        assert client.job(job.id).final


def test_cancel_of_a_queued_job(service):
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        assert client.cancel(job.id).state == "cancelled"
        assert client.cancel(job.id).state == "cancelled"
        assert service.farm.jobs.lease("worker", 0.1) is None
        with pytest.raises(CancelledError):
            client.wait(job.id)
        with pytest.raises(NotFoundError):
            client.cancel("nothing")


def test_a_job_is_deleted_though_the_answer_is_lost(service, monkeypatch):
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        send, lost = client._http.request, []

        def lose_one(method, *words, **request):
            answer = send(method, *words, **request)
            if method == "DELETE" and not lost:
                lost.append(answer)
                raise httpx.ReadError("the line broke")
            return answer

        monkeypatch.setattr(client._http, "request", lose_one)
        client.delete(job.id)
        assert len(lost) == 1
        for call in (client.job, client.delete):
            with pytest.raises(NotFoundError, match=job.id):
                call(job.id)


def test_a_full_queue_is_waited_for(farm_settings, start_service, monkeypatch):
    monkeypatch.setattr(leases, "RETRY_AFTER_S", 1.0)
    service = start_service(dataclasses.replace(farm_settings, max_queued_jobs_of_owner=1))
    with service.client() as client:
        first = client.submit(b"model", verify=False)
        timer = threading.Timer(0.3, service.farm.cancel, [first.id])
        timer.start()
        second = client.submit(b"model", verify=False)
        timer.join()
        assert second.owner == "default"
        assert {job.id for job in client.jobs(owner="default")} == {first.id, second.id}
    with service.client(patience_s=0.5) as hasty:
        with pytest.raises(QueueFullError, match="1 jobs of default") as full:
            hasty.submit(b"model", verify=False)
        assert full.value.retry_after_s == 1.0


def test_cancel_of_a_finished_job_is_a_conflict(service):
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        finish(service, b"artifact")
        with pytest.raises(ConflictError):
            client.cancel(job.id)


def finish(service, artifact: bytes) -> None:
    lease = service.farm.jobs.lease("worker", 1)
    service.farm.jobs.succeed(lease, service.farm.blobs.put(artifact), {})


def test_fetch_resumes_and_verifies(service, cut, tmp_path):
    artifact = random.Random(3).randbytes(6_000_101)
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        with pytest.raises(ConflictError, match="queued"):
            client.fetch(job.id, tmp_path / "early.farrier")
    finish(service, artifact)
    # The first connection serves the look at the job and a part of the artifact.
    proxy = cut(2_000_000, 3_000_000)
    with Client(proxy.url, service.token) as client:
        path = client.fetch(job.id, tmp_path / "model.farrier")
    assert path.read_bytes() == artifact
    assert proxy.connections == 3
    assert [p.name for p in tmp_path.iterdir()] == ["model.farrier"]


def test_fetch_continues_a_part_of_an_earlier_call(service, tmp_path):
    artifact = random.Random(4).randbytes(3_000_000)
    digest = hashlib.sha256(artifact).hexdigest()
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        finish(service, artifact)
        part = tmp_path / f".model.farrier.{digest[:16]}.part"
        for begun in (artifact[:1_234_567], artifact):
            part.write_bytes(begun)
            assert client.fetch(job.id, tmp_path / "model.farrier").read_bytes() == artifact
        part.write_bytes(bytes(1000))
        with pytest.raises(ArtifactError, match="damaged"):
            client.fetch(job.id, tmp_path / "model.farrier")
        assert not part.exists()
        new = tmp_path / "new" / "folder" / "model.farrier"
        assert client.fetch(job.id, new).read_bytes() == artifact
        with pytest.raises(StorageError, match=r"cannot write .*model.farrier is no directory"):
            client.fetch(job.id, tmp_path / "model.farrier" / "below")


def test_fetch_takes_only_what_is_signed_by_a_trusted_key(service, tmp_path, monkeypatch):
    from farrier.artifact.signature import SigningKey

    farms = service.farm.keys.current()
    artifact = farrier.load(OLDER)
    artifact.params = memoryview(bytearray(artifact._load_params().view))
    artifact.sign(farms.sign)
    signed = artifact.save(tmp_path / "signed").read_bytes()
    path = tmp_path / "model.farrier"
    with service.client() as client:
        jobs = []
        for content in (signed, OLDER.read_bytes(), b"what is no artifact"):
            jobs.append(client.submit(b"model", verify=False).id)
            finish(service, content)
        monkeypatch.setenv("FARRIER_TRUST", str(farms.public))
        assert client.fetch(jobs[0], path).read_bytes() == signed
        with pytest.raises(ArtifactError, match=f"job {jobs[1]} is not signed, and FARRIER_TRUST"):
            client.fetch(jobs[1], path)
        with pytest.raises(ArtifactError, match="not a Farrier artifact"):
            client.fetch(jobs[2], path)
        monkeypatch.setenv("FARRIER_TRUST", str(SigningKey.new().public))
        with pytest.raises(ArtifactError, match=f"is signed by {farms.public.fingerprint}"):
            client.fetch(jobs[0], path)
        assert sorted(path_in_folder.name for path_in_folder in tmp_path.iterdir()) == [
            "model.farrier",
            "signed",
        ]
        assert path.read_bytes() == signed
        monkeypatch.delenv("FARRIER_TRUST")
        assert client.fetch(jobs[1], path).read_bytes() == OLDER.read_bytes()


def test_fetch_follows_a_link_and_replaces_files_alone(service, tmp_path):
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        finish(service, b"artifact")
        (tmp_path / "link").symlink_to("model.farrier")
        client.fetch(job.id, tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "model.farrier").read_bytes() == b"artifact"
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StorageError, match="pipe: it is not a regular file"):
            client.fetch(job.id, tmp_path / "pipe")
        with pytest.raises(StorageError, match=f"{tmp_path.name}: it is a directory"):
            client.fetch(job.id, tmp_path)
        assert (tmp_path / "pipe").is_fifo()


def test_dead_server_is_named_at_once():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", "token") as client:
        begun = time.monotonic()
        for call in (client.devices, lambda: client.upload(b"x"), lambda: [*client.watch("j")]):
            with pytest.raises(ServiceError, match=str(port)) as raised:
                call()
            assert "farrier up" in raised.value.hint
        assert time.monotonic() - begun < 5


def test_wrong_token(service):
    with Client(service.url, "wrong") as client, pytest.raises(AuthenticationError, match="wrong"):
        client.devices()


def test_something_else_answers():
    def answer_nonsense(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = listener.accept()
                link.recv(65536)
                body = b"<html>hello</html>"
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                link.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_nonsense, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Client(url, "token") as client,
            pytest.raises(ServiceError, match="not as a Farrier server does"),
        ):
            client.devices()
        listener.shutdown(socket.SHUT_RDWR)


def test_watch_outlives_a_server_restart(farm_settings, start_service, monkeypatch):
    from farrier_server.api import events

    monkeypatch.setattr(events, "KEEPALIVE_S", 0.1)
    service = start_service(farm_settings)
    port = urllib.parse.urlsplit(service.url).port
    with service.client(patience_s=2) as client:
        job = client.submit(b"model", verify=False)
        updates = client.watch(job.id)
        assert next(updates) == StateChanged("queued")
        # Quiet for longer than it is patient: patience is for a server that is away.
        leases = []
        later = threading.Timer(2.5, lambda: leases.append(service.farm.jobs.lease("worker", 1)))
        later.start()
        assert next(updates) == StateChanged("running")
        later.join()
        (lease,) = leases
        service.server.should_exit = True
        wait_until(lambda: not _listens(port))
        service.farm.jobs.say(lease, 1, progress.Warned("while nobody served"))
        start_service(farm_settings, port=port)
        assert progress.Warned("while nobody served") == next(updates)
        updates.close()


def test_watch_reads_events_of_a_newer_farm(service):
    """Unknown fields of an event are left out, and so are unknown kinds of events."""
    with service.client() as client:
        job = client.submit(b"model", verify=False)
        lease = service.farm.jobs.lease("worker", 1)
        trials = progress.TrialsMeasured(8, None, float("inf"), None, "conv")
        newer = {**progress.to_dict(trials), "best_ms": None, "joules": 3}
        for number, event in enumerate((newer, {"kind": "danced"}), start=1):
            service.farm.jobs.leases.write(lease, number, json.dumps(event), {})
        service.farm.jobs.fail(lease, UsageError("no"))
        queued, running, measured, failed = client.watch(job.id)
        assert measured == trials
        assert (queued.state, running.state, failed.state) == ("queued", "running", "failed")
        assert failed.error["code"] == "usage"


def test_watch_outlives_redis(installation, start_service):
    service = start_service(installation.settings)
    with service.client(patience_s=20) as client:
        job = client.submit(b"model", verify=False)
        updates = client.watch(job.id)
        assert next(updates) == StateChanged("queued")
        installation.kill_redis()
        later = threading.Timer(1.0, installation.start_redis)
        later.start()
        assert client.cancel(job.id).state == "cancelled"  # The farm waits for Redis for a while.
        later.join()
        assert list(updates) == [StateChanged("cancelled")]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_defaults_come_from_the_environment(service, monkeypatch):
    for variable in ("FARRIER_TOKEN", "FARRIER_TOKEN_FILE", "FARRIER_CA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("FARRIER_SERVER", service.url)
    monkeypatch.setenv("FARRIER_HOME", str(service.settings.home))
    with Client() as client:
        assert client.devices() == []
    monkeypatch.setenv("FARRIER_TOKEN", "wrong")
    with Client() as client, pytest.raises(AuthenticationError):
        client.devices()
    monkeypatch.delenv("FARRIER_TOKEN")
    monkeypatch.setenv("FARRIER_TOKEN_FILE", str(service.settings.home))
    with pytest.raises(StorageError, match="token file"):
        Client()


@pytest.mark.parametrize("url", ["ftp://x", "localhost:8440", "http://"])
def test_urls_that_are_none(url):
    with pytest.raises(UsageError, match="URL"):
        Client(url, "token")
