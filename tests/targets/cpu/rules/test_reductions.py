"""Reductions over any axes: lanes along what lies together, axes joined, few results in parts."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import farrier
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.lower.contiguous_axes import with_joined_axes
from farrier.lower.program import to_program
from farrier.ops.registry import lookup
from farrier.targets.cpu.rules import for_program
from tests.targets.cpu.rules.space_programs import TARGET, check

RNG = np.random.default_rng(5)
TYPES = {kind: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in ("f4", "f2", "i1", "u1")}
KINDS = ("Sum", "Max", "Min", "Prod", "Mean", "L1", "L2", "LogSumExp", "SumSquare")
# Candidates other than the default that each example runs.
EACH = 2


@dataclasses.dataclass
class Reduced:
    """A reduction of `x`, and what follows it."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    op: str = "Sum"
    keep: int = 0
    then: str = "Abs(y)"
    operands: str = ""

    @property
    def graph(self):
        left = [1 if n in self.axes else extent for n, extent in enumerate(self.shape)]
        if not self.keep:
            left = [extent for n, extent in enumerate(self.shape) if n not in self.axes]
        text = f"f32[{', '.join(map(str, left))}]" if left else "f32[()]"
        return parse_ir(f"""
@graph
def g(x: f32[{", ".join(map(str, self.shape))}]{self.operands}):
    axes: i64[{len(self.axes)}] = constant({list(self.axes)})
    y: {text} = Reduce{self.op}(x, axes, keepdims={self.keep})
    z: {text} = {self.then}
    return z
""")

    @property
    def program(self):
        return to_program(self.graph, "region")


@pytest.mark.parametrize(
    ("shape", "axes", "joined"),
    [
        ((2, 3, 4, 5), (2, 3), "x: f32[6, 20]"),
        ((2, 3, 4, 5), (0, 1), "x: f32[6, 20]"),
        ((2, 3, 4, 5), (0, 2), "x: f32[2, 3, 4, 5]"),
        ((2, 3, 4, 5), (0, 3), "x: f32[2, 12, 5]"),
        ((2, 3, 4, 5), (0, 1, 2, 3), "x: f32[120]"),
        ((1, 3, 1, 5), (2, 3), "x: f32[3, 5]"),
        ((1, 1), (0,), "x: f32[1]"),
    ],
)
def test_axes_that_lie_together_are_one(shape, axes, joined):
    assert joined in print_ir(with_joined_axes(Reduced(shape, axes).program))


def test_axes_stay_apart_where_an_operand_walks_one_of_them():
    for operand, joined in (("b: f32[5]", "x: f32[3, 4, 5]"), ("b: f32[4, 5]", "x: f32[3, 20]")):
        region = Reduced((3, 4, 5), (0,), then="Add(y, b)", operands=f", {operand}")
        assert joined in print_ir(with_joined_axes(region.program))


@st.composite
def reductions(draw):
    shape = tuple(draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, 7, 9)), min_size=1, max_size=4)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    op = draw(st.sampled_from(("Sum", "Max", "Mean", "L2", "LogSumExp")))
    return Reduced(shape, tuple(sorted(axes)), op, draw(st.integers(0, 1)))


@given(region=reductions(), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_candidates_compute_the_reference(region, seed):
    space = for_program(region.program, TARGET, 2)
    candidates = space.candidates()
    picked = np.random.default_rng(seed).permutation(len(candidates))[:EACH]
    for decisions in (space.default(), *map(space.decisions, candidates[picked])):
        check(region, space, decisions)


def model_of(kind, shape, reductions):
    """A model of reductions of `x`: (operator, axes, whether it keeps them)."""
    names = [f"y{number}" for number in range(len(reductions))]
    nodes, constants = [], []
    for name, (op, axes, keep) in zip(names, reductions, strict=True):
        constants.append(onnx.numpy_helper.from_array(np.array(axes, np.int64), f"{name}_axes"))
        inputs = ["x", f"{name}_axes"]
        nodes.append(helper.make_node(f"Reduce{op}", inputs, [name], keepdims=keep))
    graph = helper.make_graph(
        nodes,
        "reductions",
        [helper.make_tensor_value_info("x", TYPES[kind], shape)],
        [helper.make_tensor_value_info(name, TYPES[kind], None) for name in names],
        constants,
    )
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def agree(reductions, results, x, rtol=2e-6):
    """The results of a model are those of float64, rounded."""
    for (op, axes, keep), (name, y) in zip(reductions, results.items(), strict=True):
        operator = lookup(f"Reduce{op}")
        operands = [x.astype(np.float64), np.array(axes, np.int64)]
        (wanted,) = operator.reference(operands, {"keepdims": keep})
        np.testing.assert_allclose(y, wanted, rtol=rtol, atol=rtol, err_msg=f"{name} {op} {axes}")


def on_vectors(model, **options):
    artifact = farrier.compile(model, threads=2, verify=False, **options)
    assert {kernel.rule for kernel in artifact.manifest.kernels} <= {"rows", "register_tile"}
    return artifact


def test_few_results_are_computed_in_parts_and_alike_in_every_run():
    over = [(0, 1), (1,), (0,)]
    each = itertools.product(KINDS, over)
    reductions = [(op, axes, n % 2) for n, (op, axes) in enumerate(each)]
    model = model_of("f4", ("rows", "columns"), reductions)
    artifact = on_vectors(model, typical={"rows": 3, "columns": 40_009})
    assert "'parts'" in str(artifact.schedules)
    for shape in ((3, 40_009), (1, 100_003), (50_021, 5), (7, 0), (1, 1), (2, 63)):
        x = (1 + RNG.standard_normal(shape) / 1000).astype(np.float32)  # products stay finite
        first = artifact.run({"x": x})
        agree(reductions, first, x, rtol=1e-4)
        for _ in range(5):
            for name, again in artifact.run({"x": x}).items():
                assert again.tobytes() == first[name].tobytes()


@pytest.mark.parametrize("kind", TYPES)
def test_elements_of_any_type_run_on_vectors(kind):
    over = [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)]
    reductions = [
        (op, axes, n % 2) for n, (op, axes) in enumerate(itertools.product(("Max", "Min"), over))
    ]
    model = model_of(kind, (5, 37, 83), reductions)
    artifact = on_vectors(model)
    x = RNG.standard_normal((5, 37, 83)) * 50
    x = np.maximum(x, 0) if kind == "u1" else x
    x = x.astype(kind)
    agree(reductions, artifact.run({"x": x}), x)


def test_nan_and_infinity_are_extremes():
    over = [(0,), (1,), (0, 1)]
    reductions = [(op, axes, 0) for op, axes in itertools.product(("Max", "Min", "Sum"), over)]
    model = model_of("f4", (40, 3001), reductions)
    x = RNG.standard_normal((40, 3001)).astype(np.float32)
    x[3, 17], x[4, 2999], x[5, 0] = np.nan, np.inf, -np.inf
    results = on_vectors(model).run({"x": x})
    with np.errstate(invalid="ignore"):
        agree(reductions, results, x, rtol=1e-4)
