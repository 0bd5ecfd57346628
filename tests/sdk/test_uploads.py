"""Models with data files on their way to a real server: sent once, whole, or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import InvalidModelError, NotFoundError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.sdk.client import Client, Sending
from farrier_farm.farm import Farm

MB = 1 << 20


def save(folder: pathlib.Path, data: dict[str, int]) -> pathlib.Path:
    """Write a model with a weight of this number of floats in each of these data files."""
    folder.mkdir()
    weights = [
        numpy_helper.from_array(
            np.random.default_rng(len(name)).standard_normal(size, np.float32), f"w{n}"
        )
        for n, (name, size) in enumerate(data.items())
    ]
    nodes = [helper.make_node("Add", ["x", f"w{n}"], [f"y{n}"]) for n in range(len(data))]
    graph = helper.make_graph(
        nodes,
        "external",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [
            helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, [size])
            for n, size in enumerate(data.values())
        ],
    )
    for tensor, name in zip(weights, data, strict=True):
        (folder / name).write_bytes(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, name, 0, len(tensor.raw_data))
        tensor.ClearField("raw_data")
    graph.initializer.extend(weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def model(tmp_path) -> pathlib.Path:
    """16 MB in one data file, and a little in another."""
    return save(tmp_path / "model", {"m.onnx.data": 4 * MB, "b-bias": 1000})


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The requests of every client that were answered, as "METHOD path"."""
    seen: list[str] = []
    call = Client._call

    def noting(self, method: str, path: str, **request: object) -> object:
        answer = call(self, method, path, **request)
        seen.append(f"{method} {path}")
        return answer

    monkeypatch.setattr(Client, "_call", noting)
    return seen


def patches(asked: list[str]) -> int:
    return sum(request.startswith("PATCH") for request in asked)


@pytest.fixture
def at_first(monkeypatch) -> Callable[[str, Callable[[], None]], None]:
    """Do something just before the first request of a kind."""

    def arrange(kind: str, act: Callable[[], None]) -> None:
        call, done = Client._call, []

        def acting(self, method: str, path: str, **request: object) -> object:
            if f"{method} {path}".startswith(kind) and not done:
                act()
                done.append(kind)
            return call(self, method, path, **request)

        monkeypatch.setattr(Client, "_call", acting)

    return arrange


def test_a_model_is_sent_with_its_data_files_and_only_once(service, model, asked):
    with service.client() as client:
        job = client.submit(model, verify=False)
        manifest = service.farm.models.get(job.model)
        assert manifest.message == sha256(model)
        assert {name: file.sha256 for name, file in manifest.files.items()} == {
            name: sha256(model.parent / name) for name in ("m.onnx.data", "b-bias")
        }
        assert patches(asked) == 1 + 2 + 1  # The pieces have 8 MiB.
        again = client.submit(model, verify=False, seed=1)
        assert (again.model, patches(asked)) == (job.model, 4)  # No byte was sent.
        opened = Model.of_files(*service.farm.models.verified(job.model))
        assert {n: f.size for n, f in opened.external.items()} == {
            "m.onnx.data": 16 * MB,
            "b-bias": 4000,
        }


def test_models_share_the_files_that_they_have_in_common(service, model, tmp_path, asked):
    with service.client() as client:
        first = client.upload(model)
        other = onnx.load(model, load_external_data=False)
        other.producer_name = "another"
        model.write_bytes(other.SerializeToString())
        before = patches(asked)
        assert client.upload(Model.of_path(model)) != first
        assert patches(asked) == before + 1  # the message


def test_a_connection_that_breaks_in_a_data_file(service, model, cut):
    proxy = cut(5_000_000, 6_000_000)
    with Client(proxy.url, service.token) as client:
        job = client.submit(model, verify=False)
    assert proxy.connections >= 3
    service.farm.models.verified(job.model)  # Every byte is right.


SERVER = """
import sys
from farrier_farm.settings import Settings
from farrier_server.serve import run_api
settings = Settings.from_environment()
run_api(settings, port=int(sys.argv[1]), ready=lambda url: print(url, flush=True))
"""


@pytest.fixture
def start_server(farm_settings) -> Iterator[Callable[[int], tuple[subprocess.Popen[str], str]]]:
    """Start servers of one farm, each a process: `start_server(port)`, and return their URL."""
    running: list[subprocess.Popen[str]] = []

    def start(port: int) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)],
            env={**os.environ, "FARRIER_HOME": str(farm_settings.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_a_server_that_is_killed_costs_no_byte_that_it_had(
    farm_settings, start_server, model, asked, at_first
):
    """Before the first piece, and again between the last one and the manifest."""
    server, url = start_server(0)
    servers = [server]
    port = urllib.parse.urlsplit(url).port

    def start_again() -> None:
        servers.append(start_server(port)[0])

    def kill() -> None:
        servers[-1].kill()
        servers[-1].wait()
        threading.Timer(0.2, start_again).start()

    at_first("PATCH", kill)
    at_first("POST /v1/models", kill)
    token = (farm_settings.home / "user.token").read_text().strip()
    with Client(url, token) as client:
        job = client.submit(model, verify=False)
    assert len(servers) == 3
    assert patches(asked) == 4
    farm = Farm.open(farm_settings)
    assert farm.references.are_there(sha256(model))
    assert farm.references.are_there(job.model)
    farm.models.verified(job.model)
    farm.close()


def test_progress_is_told(service, model):
    seen: list[Sending] = []
    with service.client() as client:
        client.upload(model, listener=seen.append)
        sent = [progress_of_file for progress_of_file in seen if progress_of_file.sent]
        ends = {
            pathlib.Path(progress_of_file.file).name: (progress_of_file.done, progress_of_file.size)
            for progress_of_file in seen
            if not progress_of_file.sent
        }
        assert ends["m.onnx.data"] == (16 * MB, 16 * MB)
        assert {
            pathlib.Path(progress_of_file.file).name
            for progress_of_file in sent
            if progress_of_file.done == progress_of_file.size
        } == set(ends)
        seen.clear()
        client.upload(model, listener=seen.append)
        assert not any(progress_of_file.sent for progress_of_file in seen)


def test_a_data_file_that_is_missing_or_wrong_is_named_before_a_byte_is_sent(
    service, model, tmp_path, asked
):
    data = model.parent / "m.onnx.data"
    good = data.read_bytes()
    (tmp_path / "elsewhere").write_bytes(good)
    with service.client() as client:
        data.write_bytes(good[:-1])
        with pytest.raises(InvalidModelError, match=rf"{data} has {16 * MB - 1}"):
            client.submit(model, verify=False)
        data.unlink()
        with pytest.raises(InvalidModelError, match=f"no such file: {data}"):
            client.submit(model, verify=False)
        data.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InvalidModelError, match="not in the model's folder"):
            client.submit(model, verify=False)
        with pytest.raises(InvalidModelError, match="bytes have no folder"):
            client.submit(model.read_bytes(), verify=False)
        data.unlink()
        data.write_bytes(b"")
        with pytest.raises(InvalidModelError, match=f"{data} has 0"):
            client.submit(model, verify=False)
        assert asked == []


def _append(data: pathlib.Path) -> None:
    with data.open("ab") as file:
        file.write(b"more")


def _cut(data: pathlib.Path) -> None:
    os.truncate(data, MB)


def _replace(data: pathlib.Path) -> None:
    """By a file of the same size and time."""
    other = data.with_name("other")
    other.write_bytes(random.Random(2).randbytes(16 * MB))
    os.utime(other, ns=(data.stat().st_atime_ns, data.stat().st_mtime_ns))
    other.replace(data)


def _overwrite(data: pathlib.Path) -> None:
    """Overwrite the file in place, and restore its time."""
    times = data.stat().st_atime_ns, data.stat().st_mtime_ns
    with data.open("r+b") as file:
        file.seek(9 * MB)
        file.write(b"changed")
    os.utime(data, ns=times)


def test_a_file_that_changes_while_it_is_sent_is_named(service, model, tmp_path, monkeypatch):
    call, changes = Client._call, [_append, _cut, _replace, _overwrite, pathlib.Path.unlink]
    with service.client() as client:
        for number, change in enumerate(changes):
            copy = tmp_path / f"copy{number}"
            shutil.copytree(model.parent, copy)
            data = copy / "m.onnx.data"
            with data.open("r+b") as file:
                file.write(change.__name__.encode())  # Each change makes another blob.
            done = []

            def changing(self, method, path, change=change, data=data, done=done, **request):
                if method == "PATCH" and not done:
                    done.append(change(data))
                return call(self, method, path, **request)

            with monkeypatch.context() as patch:
                patch.setattr(Client, "_call", changing)
                with pytest.raises(InvalidModelError, match=str(data)):
                    client.submit(copy / "m.onnx", verify=False)
        assert list(client.jobs()) == []
    assert service.farm.client.command("KEYS", "farrier:model:*") == []


def test_a_message_that_changes_while_it_is_sent_is_named(service, model, at_first):
    at_first("POST /v1/models", lambda: _append(model))
    at_first("PATCH", lambda: _append(model))
    with service.client() as client, pytest.raises(InvalidModelError, match=str(model)):
        client.submit(model, verify=False)


def test_a_blob_that_is_swept_before_the_manifest_is_sent_again(service, model, at_first):
    at_first("POST /v1/models", lambda: service.farm.blobs.sweep(lambda _: False, -60))
    with service.client() as client:
        job = client.submit(model, verify=False)
    service.farm.models.verified(job.model)


def test_a_server_of_an_older_version_is_named(service, model, monkeypatch):
    call = Client._call

    def older(self, method: str, path: str, **request: object) -> object:
        return call(self, method, path.replace("/v1/models", "/v0/v1/models"), **request)

    monkeypatch.setattr(Client, "_call", older)
    with service.client() as client, pytest.raises(UsageError, match="several files") as raised:
        client.submit(model, verify=False)
    assert "update the server" in raised.value.hint


def test_a_server_that_lost_a_blob_on_the_way_gets_it_again(service, model, asked, monkeypatch):
    """As one answers that looks for an upload just after it was swept."""
    call, lost = Client._call, ["no blob"]

    def answering(self, method: str, path: str, **request: object) -> object:
        if path == "/v1/models" and lost:
            raise NotFoundError(lost.pop())
        return call(self, method, path, **request)

    monkeypatch.setattr(Client, "_call", answering)
    with service.client() as client:
        assert client.submit(model, verify=False).model
    assert asked.count("POST /v1/models") == 1


def test_an_empty_data_file_is_named_before_a_byte_is_sent(service, tmp_path, asked):
    model = save(tmp_path / "model", {"m.onnx.data": 1000, "empty": 0})
    with service.client() as client, pytest.raises(InvalidModelError, match="empty: the file is"):
        client.submit(model, verify=False)
    assert asked == []


def test_the_limit_of_the_server_is_named_with_the_file(farm_settings, start_service, model):
    small = start_service(dataclasses.replace(farm_settings, max_upload_bytes=10 * MB))
    with small.client() as client, pytest.raises(InvalidModelError) as raised:
        client.submit(model, verify=False)
    assert (
        f"m.onnx.data: the file has {16 * MB} bytes; the server accepts at most {10 * MB}"
        in str(raised.value)
    )
