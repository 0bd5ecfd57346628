"""Exported programs, written by hand: compiled, run and compared with numpy."""

import numpy as np
import pytest

import farrier
from farrier.errors import UnsupportedOperatorError
from tests.frontends.torch.writer import Program, Text, saved


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _session(program, outputs, **options):
    return farrier.compile(saved(program, outputs), verify=False, threads=1, **options).session()


def test_a_network_with_an_open_batch(rng):
    w = rng.standard_normal((4, 8)).astype(np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    program = Program({"x": ("f32", ["s0", 8])}, {"w": w, "b": bias}, {"s0": (1, 64)})
    program.call("linear", "aten.linear.default", "x", "w", "b")
    program.call("relu", "aten.relu.default", "linear")
    program.call("scaled", "aten.mul.Tensor", "relu", 2)
    session = _session(program, ["scaled"])
    for batch in (1, 3, 64):
        x = rng.standard_normal((batch, 8)).astype(np.float32)
        (y,) = session.run({"x": x}).values()
        np.testing.assert_allclose(y, 2 * np.maximum(x @ w.T + bias, 0), rtol=1e-5, atol=1e-5)


def test_writes_in_place_reach_the_tensor_and_its_views(rng):
    program = Program({"x": ("f32", ["s0", 4])}, ranges={"s0": (1, 9)})
    program.call("own", "aten.clone.default", "x")
    program.call("row", "aten.select.int", "own", 0, 0)
    program.call("column", "aten.select.int", "own", 1, 3)
    program.call("rest", "aten.slice.Tensor", "own", 0, 1)
    program.call("written", "aten.mul_.Tensor", "row", 10)
    program.call("filled", "aten.fill_.Scalar", "column", 7)
    program.call("out", "aten.add.Tensor", "own", 0)
    session = _session(program, ["out", "rest", "row"])
    x = rng.standard_normal((5, 4)).astype(np.float32)
    out, rest, row = session.run({"x": x}).values()
    want = x.copy()
    want[0] *= 10
    want[:, 3] = 7
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(rest, want[1:])
    np.testing.assert_array_equal(row, want[0])


def test_a_buffer_that_is_written_is_an_input_and_an_output():
    program = Program({"x": ("f32", [3])}, {"total": np.zeros(3, np.float32)})
    program.call("sum", "aten.add_.Tensor", "total", "x")
    program.call("out", "aten.mul.Tensor", "sum", 2)
    session = _session(program, ["out"])
    x, total = np.float32([1, 2, 3]), np.float32([10, 20, 30])
    results = session.run({"x": x, "total": total})
    np.testing.assert_array_equal(results["output_0"], 2 * (x + total))
    np.testing.assert_array_equal(results["total.new"], x + total)


def test_attention_sees_what_torch_sees(rng):
    program = Program({n: ("f32", [1, 2, "s0", 8]) for n in "qkv"}, ranges={"s0": (1, 32)})
    name = "aten.scaled_dot_product_attention.default"
    program.call("out", name, "q", "k", "v", None, 0.0, True)
    q, k, v = rng.standard_normal((3, 1, 2, 5, 8)).astype(np.float32)
    (out,) = _session(program, ["out"]).run({"q": q, "k": k, "v": v}).values()
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    scores = np.where(np.tri(5, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_unknown_operators_are_listed_at_once_with_their_lines():
    program = Program({"x": ("f32", [3])})
    program.call("a", "aten.frobnicate.default", "x", line="net.py:12")
    program.call("b", "my_ops.twice.default", "a", line="net.py:15")
    program.call("c", "aten.frobnicate.default", "b")
    with pytest.raises(UnsupportedOperatorError) as error:
        farrier.compile(saved(program, ["c"]))
    for words in ("2 operators", "aten.frobnicate.default ×2", "net.py:12", "net.py:15"):
        assert words in str(error.value)


def test_an_error_of_an_operator_names_the_line():
    program = Program({"x": ("f32", [3])})
    program.call("d", "aten.dropout.default", "x", 0.5, True, line="net.py:9")
    with pytest.raises(farrier.FarrierError, match=r"eval\(\).*net\.py:9"):
        farrier.compile(saved(program, ["d"]))
    program = Program({"x": ("f32", [3]), "y": ("f32", [4])})
    program.call("s", "aten.add.Tensor", "x", "y", line="net.py:3")
    with pytest.raises(farrier.FarrierError, match=r"net\.py:3"):
        farrier.compile(saved(program, ["s"]))


def test_text_arguments(rng):
    program = Program({"x": ("f32", [9])})
    program.call("g", "aten.gelu.default", "x", approximate=Text("tanh"))
    x = rng.standard_normal(9).astype(np.float32)
    (y,) = _session(program, ["g"]).run({"x": x}).values()
    want = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
