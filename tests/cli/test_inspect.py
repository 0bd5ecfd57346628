"""`farrier inspect`: what it says, and how it exits."""

from __future__ import annotations

import json

from onnx import helper

from tests.cli.conftest import save_model


def test_a_model_that_compiles(farrier, mlp):
    done = farrier("inspect", mlp)
    assert done.returncode == 0, done.stderr
    assert "operator: " in done.stdout
    assert "input: x f32[" in done.stdout
    assert "open: " in done.stdout
    document = json.loads(farrier("inspect", mlp, "--json").stdout)
    assert document["problems"] == []
    assert document["graph"]["edges"]


def test_one_that_does_not(farrier, tmp_path):
    name = "\x1b[31m\u202ewarp"
    nodes = [helper.make_node("Warp", ["x"], ["y"], name, domain=name)]
    done = farrier("inspect", save_model(tmp_path / "m.onnx", nodes, [3]))
    assert done.returncode == 1
    for part in ("problem: ", "(not supported)"):
        assert part in done.stdout
    for part in ("\x1b", "\u202e"):
        assert part not in done.stdout


def test_what_is_no_model_and_no_file(farrier, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"text")
    done = farrier("inspect", "m.onnx")
    assert (done.returncode, "4 bytes are no ONNX model" in done.stdout) == (1, True)
    assert farrier("inspect", "none.onnx").returncode == 2
