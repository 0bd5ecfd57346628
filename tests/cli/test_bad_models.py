"""Tests of files that are not models: one clear line, the way out, an exit code of its own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

node = helper.make_node


def _truncated(path, save):
    save(path, [node("MatMul", ["x", "w"], ["y"])], [1, 9], {"w": np.ones((9, 9), np.float32)})
    path.write_bytes(path.read_bytes()[:200])


def _empty(path, _):
    path.touch()


def _huge(path, _):
    with path.open("wb") as file:
        file.truncate(3 << 30)  # A sparse file takes no room on the disk.


def _text(path, _):
    path.write_text("hello\n")


def _newer_opset(path, save):
    save(path, [node("Relu", ["x"], ["y"])], [1, 9], opset=99)


def _lost_data(path, save):
    save(path, [node("MatMul", ["x", "w"], ["y"])], [1, 9], {"w": np.ones((9, 9), np.float32)})
    whole = onnx.load(path)
    onnx.save(whole, path, save_as_external_data=True, location="weights", size_threshold=0)
    (path.parent / "weights").unlink()


def _unknown_operators(path, save):
    nodes = [
        node("Frobnicate", ["x"], ["a"], name="first", domain="com.example"),
        node("Relu", ["a"], ["b"]),
        node("Grommet", ["b"], ["y"], name="second"),
    ]
    save(path, nodes, [1, 9])


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (_truncated, 3, ["200 bytes are no ONNX model: truncated"]),
        (_empty, 3, ["empty: 0 bytes"]),
        (_huge, 3, ["more than 2 GiB"]),
        (_text, 3, ["no ONNX model"]),
        (_newer_opset, 3, ["opset 99", "reads 1 to"]),
        (_lost_data, 3, ["'w' is in the data file 'weights'", "no such file", "copy all of them"]),
        (_unknown_operators, 4, ["com.example:Frobnicate", "'first'", "Grommet", "'second'"]),
    ],
)
def test_a_bad_model_is_refused(farrier, tmp_path, save, make, code, words):
    make(tmp_path / "model.onnx", save)
    done = farrier("compile", "model.onnx")
    assert done.returncode == code
    assert done.stderr.startswith("error: ")
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "model.farrier").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "rip5"], ["'rip5'", "did you mean rpi5", "`farrier targets`"]),
        (["--target", "none.json"], ["none.json", "No such file"]),
        (["--budget", "1y"], ["'1y'", "--budget 60s"]),
        (["--shape", "x=1.5"], ["'1.5'", "'x=1.5'", "--shape NAME="]),
        (["--shape", "x=n:4..2,37"], ["'n:4..2'", "empty"]),
        (["--shape", "x=n:1..8,37", "--hot", "m=2"], ["no dimension named 'm'", "open: n"]),
        (["--shape", "z=1,2"], ["no input 'z'", "x f32[n, 37]"]),
        (["--shape", "x=3,36"], ["(3, 36)", "not 37"]),
        (["--trials", "-1"], ["trials is -1"]),
        (["--threads", "-1"], ["threads is -1"]),
        (["--until", "done"], ["no stage 'done'", "lower"]),
    ],
)
def test_an_option_that_makes_no_sense_is_named(farrier, mlp, options, words):
    done = farrier("compile", mlp, *options)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing.onnx", "no such file: nothing.onnx"),
        ("home.onnx", "home.onnx is a directory"),
        (".", ". is a directory"),
        ("/dev/null", "/dev/null is not a regular file"),
        ("n" * 300, "File name too long"),
    ],
)
def test_what_is_no_file_is_named(farrier, tmp_path, name, words):
    (tmp_path / "home.onnx").mkdir()
    done = farrier("compile", name)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
