"""Rewrites of whole programs, from which sketches are derived."""

from __future__ import annotations

import inspect
import re
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import farrier
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Binary, BinaryOp, Select
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.substitute import loads
from farrier.ir.walk import walk
from farrier.targets.cpu.rules import sketch
from farrier.targets.cpu.sketch import phases as phases_module
from farrier.targets.cpu.sketch import stage_operand
from farrier.targets.cpu.sketch.phases import has_residues, phases
from tests.targets.cpu.rules.golden_kernels import TARGETS

REWRITES = {phases_module: phases, stage_operand: stage_operand.stage_operands}


@pytest.mark.parametrize("module", REWRITES, ids=lambda module: module.__name__)
def test_the_docstring_is_true(module):
    texts = re.search(r"^before:\n(.*?)^after:\n(.*?)\n\n", inspect.getdoc(module), re.S | re.M)
    before, after = (parse_ir(textwrap.dedent(part).strip()) for part in texts.groups())
    assert print_ir(REWRITES[module](before)) == print_ir(after)
    assert_equal(before, after)


def assert_equal(before, after):
    rng = np.random.default_rng(0)
    inputs = {
        buffer.name: rng.integers(-4, 5, buffer.shape).astype(buffer.dtype.numpy)
        for buffer in before.inputs
    }
    expected, result = evaluate(before, inputs), evaluate(after, inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(result[name], array, err_msg=name)


@given(
    stride=st.integers(2, 5),
    dilation=st.integers(1, 5),
    taps=st.integers(1, 6),
    before=st.integers(0, 3),
    points=st.integers(1, 11),
    wanted=st.integers(0, 4),
    op=st.sampled_from(["sum", "max"]),
)
def test_no_guard_by_residue_is_left(stride, dilation, taps, before, points, wanted, op):
    at = f"(o + {before} - {dilation} * k)"
    identity = "0.0" if op == "sum" else "-inf"
    program = parse_ir(f"""@program
def p(x: f32[{points + 20}], w: f32[2, {taps}]):
    y: f32[2, {points}]
    for c, o in axes(2, {points}):
        y[c, o] = {op}(
            x[({at} + 30) // {stride}] * w[c, k]
            if {at} % {stride} == {wanted % stride} else {identity}
            for k in axes({taps})
        )
    return y
""")
    changed = phases(program)
    solvable = taps > 1 and dilation % stride != 0
    assert has_residues(program) is solvable
    if changed is None:
        return
    assert_equal(program, changed)
    assert not has_residues(changed)
    if dilation == 1 and points > stride and taps % stride == 0:
        (total,) = (stage for stage in changed.stages if stage.reduced_axes)
        assert total.reduced_axes[0].extent == taps // stride
        assert not any(
            isinstance(node, Binary) and node.op is BinaryOp.EQ for node in walk(total.body)
        )


def test_points_that_the_last_phase_lacks_read_nothing_beyond_a_buffer():
    program = parse_ir("""@program
def p(x: f32[3], w: f32[4]):
    y: f32[3]
    for o in axes(3):
        y[o] = min(
            (1.0 if x[o] == w[k] else 2.0) if (o - k) % 2 == 0 else inf for k in axes(4)
        )
    return y
""")
    assert_equal(program, phases(program))


WINDOW = """@program
def p(x: f64[4, 20], w: f64[6, 4, 3], s: f64[4]):
    y: f64[6, 20]
    for c, i in axes(6, 20):
        y[c, i] = sum(
            (x[d, i + k - 1] if 0 <= i + k - 1 and i + k - 1 < 20 else PAD) * w[c, d, k] + s[d]
            for d, k in axes(4, 3)
        )
    return y
"""


@pytest.mark.parametrize("padding", ["0.0", "2.0"])
def test_padding_is_written_into_the_copy(padding):
    program = parse_ir(WINDOW.replace("PAD", padding))
    changed = stage_operand.stage_operands(program)
    assert_equal(program, changed)
    copy, total = changed.stages
    assert copy.buffer.shape == (4, 22)
    assert not any(isinstance(node, Select) for node in walk(total.body))
    # Lanes have the weights and the offsets in common.
    names = {load.buffer.name for load in loads(total.body)}
    assert names == {"y_x_staged", "w", "s"}


@pytest.mark.parametrize(
    ("summand", "reason"),
    [
        ("a[i, k] * b[k, j]", "the lanes lie together"),
        ("a[i, k] * b[2 * j, k]", "each lane is two elements from the next"),
        ("a[i, k] * b[n[j], k]", "an index is an element"),
        ("a[i, k] * c[i, j, k]", "no point reads an element again"),
        ("a[i, k] * (b[j, k - i] if i < k else 0.0)", "the guard is less than the whole buffer"),
    ],
)
def test_what_a_copy_does_not_improve_is_read_where_it_lies(summand, reason):
    program = parse_ir(f"""@program
def p(a: f32[8, 8], b: f32[16, 8], c: f32[8, 8, 8], n: i64[8]):
    y: f32[8, 8]
    for i, j in axes(8, 8):
        y[i, j] = sum({summand} for k in axes(8))
    return y
""")
    assert stage_operand.stage_operands(program) is None, reason


def test_a_transposed_operand_is_staged_where_many_rows_read_it():
    for rows, is_staged in ((64, True), (4, False)):
        program = parse_ir(f"""@program
def p(a: f32[{rows}, 64], b: f32[64, 64], c: f32[64]):
    y: f32[{rows}, 64]
    for i, j in axes({rows}, 64):
        y[i, j] = sum(a[i, k] * b[j, k] * c[k] for k in axes(64))
    return y
""")
        space = sketch.spaces(program, TARGETS["x86-64-v3"], 1)[0]
        assert ("stage-operands" in space.rule.name) is is_staged


def test_a_transposed_convolution_by_computed_weights_runs_in_phases():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 4, 9, 9), np.float32)
    w = rng.standard_normal((4, 3, 4, 3), np.float32)
    w[0, 1, 0, 0] = np.inf  # The products of other taps are not multiplied by zero.
    arrays = {"x": x, "w": w}
    node = helper.make_node("ConvTranspose", [*arrays], ["y"], strides=[2, 3], pads=[1, 0, 2, 0])
    kinds = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in arrays.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "up", kinds, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    artifact = farrier.compile(model, threads=2, verify=False)
    (kernel,) = artifact.manifest.kernels
    assert kernel.rule == "sketch/phases+tile-registers"
    y = artifact.run(arrays)["y"]
    whole = np.zeros((1, 3, 20, 27))
    for i in range(9):
        for j in range(9):
            with np.errstate(invalid="ignore"):
                whole[..., 2 * i : 2 * i + 4, 3 * j : 3 * j + 3] += np.einsum(
                    "nc,cokl->nokl", x[:, :, i, j], w
                )
    expected = whole[..., 1:-2, :]
    is_reached = np.isfinite(expected)
    assert not is_reached.all()
    np.testing.assert_allclose(y[is_reached], expected[is_reached], rtol=1e-4, atol=1e-5)
