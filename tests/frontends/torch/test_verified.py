"""The reference that verifies a program, and the bytes that a client sends of a module."""

import hashlib
import re
import subprocess
import sys

import numpy as np
import pytest

import farrier
from farrier.frontends.onnx.model.file import Model
from farrier.sdk import client
from tests.frontends.torch.writer import Program, saved


@pytest.fixture
def data():
    w = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    program = Program({"x": ("f32", ["s0", 8])}, {"w": w}, {"s0": (0, 64)})
    program.call("linear", "aten.linear.default", "x", "w")
    program.call("out", "aten.gelu.default", "linear")
    return saved(program, ["out"])


def test_float64_verifies_a_program_and_the_command_says_so(data, tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(data)
    command = [sys.executable, "-m", "farrier.cli", "compile", path, "-o", tmp_path / "m.farrier"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"verified on local: error \S+ of the .* from float64", done.stderr)
    verification = farrier.load(tmp_path / "m.farrier").report["verification"]
    assert verification["reference"] == "float64"
    assert verification["max_error"] < 1e-5


class Queued(Exception):
    """The request that queues a job, with which the exchange ends."""


def test_a_client_sends_the_exported_program(data, monkeypatch):
    """The export, which needs torch, is replaced by its result, and the server by its answers."""
    module, exports, sent = object(), [], bytearray()

    def exported(*example):
        exports.append(example)
        return Model.of_bytes(data, "Net")

    def answering(self, method, path, *, json=None, content=b"", **request):
        match method, path:
            case "POST", "/v1/uploads":
                assert json == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            case "PATCH", "/v1/uploads/u1":
                assert request["headers"] == {"Upload-Offset": str(len(sent))}
                sent.extend(content)
            case _:
                raise Queued(method, path, json)
        return {"id": "u1", "offset": len(sent), "complete": len(sent) == len(data)}

    monkeypatch.setattr(client, "is_module", lambda model: model is module)
    monkeypatch.setattr(client, "exported", exported)
    monkeypatch.setattr(client.Client, "_call", answering)
    with (
        client.Client("http://127.0.0.1:9", "token") as farm,
        pytest.raises(Queued) as queued,
    ):
        farm.submit(module, args=("x",), kwargs={"k": 1}, dynamic_shapes=({0: "batch"},))
    assert exports == [(module, ("x",), {"k": 1}, ({0: "batch"},))]
    assert bytes(sent) == data
    method, path, body = queued.value.args
    assert (method, path) == ("POST", "/v1/jobs")
    assert (body["model"], body["name"]) == (hashlib.sha256(data).hexdigest(), "Net")
