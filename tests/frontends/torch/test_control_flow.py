"""Loops of exported programs, compared with Python's."""

import numpy as np
import pytest

import farrier
from farrier.errors import UnsupportedOperatorError
from farrier.frontends.onnx.model.file import Model
from farrier.frontends.torch import import_model
from tests.frontends.torch.writer import Program, saved

W = np.float32([[0.5, -1], [1, 0.25]])


def halving():
    """while i < n: i, x = i + 1, tanh(x @ w)."""
    kinds = {"i": ("i64", []), "x": ("f32", [2, 2]), "n": ("i64", []), "w": ("f32", [2, 2])}
    condition, body = Program(kinds), Program(kinds)
    condition.call("less", "aten.lt.Tensor", "i", "n", dtype="bool")
    body.call("next", "aten.add.Tensor", "i", 1, dtype="i64")
    body.call("product", "aten.mm.default", "x", "w")
    body.call("tanh", "aten.tanh.default", "product")
    inputs = {"x": ("f32", [2, 2]), "n": ("i64", []), "start": ("i64", [])}
    program = Program(inputs, {"w": W})
    program.call(
        *("end", "higher_order.while_loop"),
        *(condition.nested(["less"]), body.nested(["next", "tanh"])),
        *(["start", "x"], ["n", "w"]),
        more=["y"],
    )
    return saved(program, ["end", "y"])


def test_a_loop_ends_with_its_condition():
    session = farrier.compile(halving(), threads=1).session()
    x = np.float32([[1, 2], [3, -4]])
    for start, n in ((0, 0), (0, 1), (2, 7), (5, 3)):
        i, y = start, x
        while i < n:
            i, y = i + 1, np.tanh(y @ W)
        end, got = session.run({"x": x, "n": np.array(n), "start": np.array(start)}).values()
        assert end == i
        np.testing.assert_allclose(got, y, atol=1e-6)


def test_a_scan_stacks_what_each_iteration_returns():
    body = Program({"c": ("f32", [2]), "e": ("f32", [2]), "w": ("f32", [2, 2])})
    body.call("product", "aten.mv.default", "w", "e")
    body.call("sum", "aten.add.Tensor", "c", "product")
    body.call("relu", "aten.relu.default", "sum")
    inputs = {"x": ("f32", ["s0", 2]), "c": ("f32", [2])}
    program = Program(inputs, {"w": W}, {"s0": (1, 9)})
    body = body.nested(["sum", "relu"])
    program.call("last", "higher_order.scan", body, ["c"], ["x"], ["w"], more=["all"])
    session = farrier.compile(saved(program, ["last", "all"]), threads=1).session()
    for length in (1, 5):
        x = np.random.default_rng(length).standard_normal((length, 2)).astype(np.float32)
        sums = np.cumsum(x @ W.T, axis=0) + 1
        last, stacked = session.run({"x": x, "c": np.ones(2, np.float32)}).values()
        np.testing.assert_allclose(last, sums[-1], atol=1e-5)
        np.testing.assert_allclose(stacked, np.maximum(sums, 0), atol=1e-5)


def test_a_loop_over_numbers_is_refused_by_its_line():
    body = Program({"x": ("f32", [2])})
    program = Program({"x": ("f32", [2])})
    body = body.nested(["x"])
    arguments = (body, body, {"as_ints": [3]}, ["x"])
    program.call("y", "higher_order.while_loop", *arguments, line="net.py:9")
    with pytest.raises(UnsupportedOperatorError, match=r"of numbers.*net\.py:9"):
        import_model(Model.of_bytes(saved(program, ["y"])))
