"""A frontend of its own, which knows no ONNX, stands on the builder."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import farrier
from farrier.errors import (
    InputMismatchError,
    InvalidModelError,
    UnresolvedShapeError,
    UnsupportedOperatorError,
    UsageError,
)
from farrier.frontends.builder import Builder, Declared, Source, built, resolve
from farrier.ir.types import DType
from farrier.options.shapes import parse_shapes
from tests.documentation.snippets import programs

DOCS = Path(__file__).parents[2] / "docs"

# A convolution over images of open sizes, a loop that halves them, and a choice of two ways.
_MODEL = """
import sys
import numpy as np
import farrier
from farrier.frontends.builder import Builder, Declared, Iteration, Source
from farrier.ir.types import DType

WEIGHTS = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)

def build(b: Builder) -> None:
    x, times, flag = (b.input(name) for name in ("x", "times", "flag"))
    (y,) = b.node("Conv", [x, b.constant(WEIGHTS)], {"pads": (1, 1, 1, 1)}, origin="conv")
    (y,) = b.node("Relu", [y], origin="relu")

    def halved(number, carried, slices):
        (half,) = b.node("Mul", [carried[0], b.constant(np.float32([0.5]))], origin="half")
        return Iteration([half], stacked=[b.add("ReduceSum", half, keepdims=0)])

    y, sums = b.loop([y], halved, trips=times, origin="halves")
    (z,) = b.if_(
        flag,
        lambda: b.node("Neg", [y], origin="negated"),
        lambda: b.node("Add", [y, y], origin="doubled"),
        origin="either",
    )
    b.output("z", z)
    b.output("sums", sums)

source = Source(
    [
        Declared("x", DType.F32, ("batch", 3, "h", "w")),
        Declared("times", DType.I64, ()),
        Declared("flag", DType.BOOL, ()),
    ],
    build,
    "halves",
)
"""
_RUN = """
artifact = farrier.compile(source)
assert "onnx" not in sys.modules, "the builder imports onnx"
assert artifact.report["verification"]["reference"] == "float64", artifact.report["verification"]
assert artifact.manifest.declaration is None
session = artifact.session()
for batch, h, w, times, flag in ((1, 8, 8, 2, True), (2, 5, 7, 3, False), (1, 6, 4, 0, True)):
    x = np.random.default_rng(1).standard_normal((batch, 3, h, w)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.maximum(np.einsum("bchwij,ocij->bohw", windows, WEIGHTS), 0)
    halves = [y * 0.5 ** (n + 1) for n in range(times)]
    y = halves[-1] if halves else y
    feeds = {"x": x, "times": np.int64(times), "flag": np.bool_(flag)}
    z, sums = (session.run(feeds)[name] for name in ("z", "sums"))
    np.testing.assert_allclose(z, -y if flag else y + y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sums, [one.sum() for one in halves], rtol=1e-4)
"""


def test_it_compiles_and_runs_without_onnx():
    code = _MODEL + _RUN
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _built(build, *dims, shape=None):
    shapes = {} if shape is None else parse_shapes([f"x={shape}"])
    return built(resolve([Declared("x", DType.F32, dims)], shapes), build)


def test_questions_about_open_dims_begin_the_build_again():
    runs = []

    def build(b: Builder) -> None:
        runs.append(b)
        shape = b.constant(np.array([-1, 6]))
        b.output("y", *b.node("Reshape", ["x", shape], origin="rows"))

    model = _built(build, "n", 4)
    assert len(runs) > 1
    (precondition,) = model.preconditions
    assert precondition.node == "node 'rows' (Reshape)"
    assert precondition.needs == "n is a multiple of 3"
    assert model.dims[0].step == 3


def test_sizes_and_constants_are_folded():
    def build(b: Builder) -> None:
        doubled = b.add("Mul", b.add("Shape", "x"), b.constant(np.array([2, 1])))
        b.output("y", b.add("Expand", b.constant(np.zeros((1, 1), np.float32)), doubled))

    model = _built(build, "n", 4)
    assert [node.op for node in model.graph.nodes] == ["Expand"]
    (n,) = model.dims
    assert model.graph.outputs[0].type.shape == (2 * n.extent, 4)


@pytest.mark.parametrize("selects", [True, False])
def test_sizes_that_values_decide_select_a_branch_at_run_time(selects):
    def build(b: Builder) -> None:
        (places,) = b.node("NonZero", ["x"], origin="places")
        count = b.add("Gather", b.add("Shape", places), b.constant(np.array(1)), axis=0)
        operands = [count, b.constant(np.array(2))]
        (is_many,) = b.node("Greater", operands, origin="many", selects=selects)
        doubled = b.if_(is_many, lambda: [b.add("Add", "x", "x")], lambda: ["x"], origin="either")
        b.output("y", *doubled)

    model = _built(build, 6)
    ops = [node.op for node in model.graph.nodes]
    assert ("If" in ops) == selects, "otherwise other sizes end the run"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda b: b.node("MatMul", ["x", "x"], origin="product"),
            InvalidModelError,
            r"node 'product' \(MatMul\)",
        ),
        (
            lambda b: b.node("Nothing", ["x"], origin="here"),
            UnsupportedOperatorError,
            r"node 'here' \(Nothing\): the operator Nothing is not supported",
        ),
        (lambda b: b.input("y"), InvalidModelError, "no input 'y' is declared"),
    ],
)
def test_errors_name_node_and_origin(build, error, message):
    with pytest.raises(error, match=message):
        _built(build, 3, 4)


def test_a_shape_of_values_names_the_inputs_that_decide_it():
    def build(b: Builder) -> None:
        axes = b.add("Cast", "x", to="i64")
        b.node("Transpose", [axes], {"perm": (0,)}, origin="fine")
        b.node("Unsqueeze", [axes, axes], origin="axes")

    with pytest.raises(UnresolvedShapeError, match="node 'axes'") as caught:
        _built(build, 2)
    assert caught.value.deciding == ("x",)


def test_an_axis_of_more_than_one_element_is_not_stretched_to_what_values_ask():
    """An axis with a single element by chance is not either: its extent is open and stays."""

    def build(b: Builder) -> None:
        b.output("y", *b.node("Expand", ["x", "to"], origin="spread"))

    values = [Declared("x", DType.F32, ("rows", 2, 1)), Declared("to", DType.I64, (3,))]
    session = farrier.compile(Source(values, build), threads=1, verify=False).session()

    def run(rows, to):
        x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2, 1)
        return x, session.run({"x": x, "to": np.array(to)})["y"]

    for rows, to in (3, (3, 2, 4)), (3, (1, 1, 5)), (1, (1, 2, 1)), (2, (2, 1, 3)):
        x, result = run(rows, to)
        np.testing.assert_array_equal(result, np.broadcast_to(x, np.broadcast_shapes(x.shape, to)))
    for rows, to in (3, (4, 2, 1)), (1, (3, 2, 1)), (2, (2, 5, 1)):
        with pytest.raises(InputMismatchError, match=r"'spread'.* only an axis of 1 is stretched"):
            run(rows, to)


def test_background_tuning_asks_for_a_file():
    source = Source([Declared("x", DType.F32, (4,))], lambda b: b.output("y", b.add("Neg", "x")))
    with pytest.raises(UsageError, match="needs an ONNX model"):
        farrier.compile(source, background=True)


def test_the_example_of_the_page_runs():
    (program,) = programs(DOCS / "develop/architecture.md")
    names = {}
    exec(program, names)
    x = np.float32([[-1, 2] * 32] * 3)
    np.testing.assert_array_equal(names["artifact"].session().run({"x": x})["y"], np.maximum(x, 0))


def test_the_example_of_run_time_sizes_runs():
    (program,) = programs(DOCS / "frontends.md")
    names = {}
    exec(program, names)
    x, results = names["x"], names["results"]
    np.testing.assert_array_equal(results["top"], x[:2])
    np.testing.assert_array_equal(results["tail"], x[2:])
    np.testing.assert_array_equal(results["pairs"], x.reshape(5, 2, 3))
