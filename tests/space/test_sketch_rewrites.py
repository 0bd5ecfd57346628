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
from farrier.ir.expr import Binary, BinaryOp
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.walk import walk
from farrier.space.sketch import phases as phases_module
from farrier.space.sketch.phases import has_residues, phases

REWRITES = {phases_module: phases}


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
