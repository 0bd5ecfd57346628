"""Programs become nests with the names, extents and halos that the rest of the compiler relies
on."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import Alloc, For, LoopKind
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout
from farrier.ir.verify_kernel import verify_function
from farrier.lower.loops import to_loops
from tests.lowering import finalize
from tests.schedule.programs import (
    axes,
    conv_bias_relu,
    inputs_of,
    load,
    matmul,
    plus,
    run,
    softmax,
)


def _extents(function):
    return {s.var: s.extent for s in walk_stmts(function.body) if isinstance(s, For)}


def test_loops_are_named_after_stage_and_axis():
    assert _extents(to_loops(matmul(2, 3, 4))) == {
        "y_init_m": 2,
        "y_init_n": 3,
        "y_m": 2,
        "y_n": 3,
        "y_k": 4,
    }


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (5, 7, 3)])
def test_matmul_has_numpy_s_result(shape):
    program = matmul(*shape)
    inputs = inputs_of(program)
    result = run(to_loops(program), program)["y"]
    np.testing.assert_allclose(result, inputs["x"] @ inputs["w"], rtol=1e-5, atol=1e-6)


def test_softmax_has_numpy_s_result():
    program = softmax(3, 11)
    x = inputs_of(program)["x"].astype(np.float64)
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(run(to_loops(program), program)["y"], expected, rtol=1e-5)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_layouts_do_not_change_a_convolution(stride, dilation):
    def result(block, halo):
        program = conv_bias_relu(
            3, 5, 7, stride=stride, dilation=dilation, block=block, halo_out=halo
        )
        return run(to_loops(program), program)["y"]

    plain = result(None, 0)
    np.testing.assert_allclose(result(4, 0), plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result(4, 2), plain, rtol=1e-5, atol=1e-6)


def test_a_partial_block_is_computed_whole_and_its_constants_are_padded():
    function = to_loops(conv_bias_relu(3, 5, 4, block=4))
    extents = _extents(function)
    assert extents["y_oc"] == extents["conv_oc"] == extents["conv_init_oc"] == 8
    assert extents["conv_ic"] == 3
    bias = next(p for p in function.params if p.name == "b")
    assert bias.layout is not None
    assert bias.layout.physical_shape(bias.shape) == (2, 4)


def test_a_plain_argument_read_at_the_blocked_axis_keeps_the_logical_extent():
    x = Buffer("x", DType.F32, (1, 5, 2, 2))
    y = Buffer("y", DType.F32, (1, 5, 2, 2), Layout.blocked(4, 1, 4))
    points = axes(n=1, c=5, h=2, w=2)
    stage = Stage(y, points, plus(load(x, "n", "c", "h", "w"), load(x, "n", "c", "h", "w")))
    program = TensorProgram("double", (x,), (stage,), (y,))
    function = to_loops(program)
    assert _extents(function)["y_c"] == 5
    inputs = inputs_of(program)
    np.testing.assert_allclose(run(function, program)["y"], 2 * inputs["x"], rtol=1e-6)


def test_a_shifted_read_keeps_the_logical_extent():
    x = Buffer("x", DType.F32, (1, 8, 1, 1), Layout.blocked(4, 1, 4))
    y = Buffer("y", DType.F32, (1, 5, 1, 1), Layout.blocked(4, 1, 4))
    from farrier.ir.expr import Var, add

    body = load(x, "n", add(Var("c"), 3), "h", "w")
    program = TensorProgram("shift", (x,), (Stage(y, axes(n=1, c=5, h=1, w=1), body),), (y,))
    assert _extents(to_loops(program))["y_c"] == 5


@pytest.mark.parametrize(
    "halo", [((0, 0), (0, 0), (1, 2), (2, 0)), ((0, 0), (0, 0), (0, 0), (3, 1))]
)
@pytest.mark.parametrize("block", [4, None])
def test_the_halo_of_an_output_is_written_with_zeros(halo, block):
    plain = Layout.plain(4) if block is None else Layout.blocked(4, 1, block)
    layout = Layout(plain.dims, halo)
    x = Buffer("x", DType.F32, (2, 5, 3, 2), None, MemoryScope.PARAM)
    y = Buffer("y", DType.F32, (2, 5, 3, 2), layout)
    stage = Stage(y, axes(n=2, c=5, h=3, w=2), load(x, "n", "c", "h", "w"))
    program = TensorProgram("relayout", (x,), (stage,), (y,))
    inputs = inputs_of(program)
    function = to_loops(program)
    verify_function(function)
    halo_loops = [s for s in walk_stmts(function.body) if isinstance(s, For) and s.var == "y_halo"]
    assert [s.kind for s in halo_loops] == [LoopKind.PARALLEL]
    for form in (function, finalize(function)):
        memory = run_loops(form, inputs, packed=True)["y"]
        expected = layout.pack(inputs["x"])
        inside = Layout.pack(layout, np.ones((2, 5, 3, 2))) > 0
        np.testing.assert_array_equal(memory[inside], expected[inside])
        halo_only = _halo_of(layout, (2, 5, 3, 2))
        assert halo_only.any()
        assert not memory[halo_only].any()  # NaN, were it not written


def _halo_of(layout, shape):
    """The halo of the first channels in memory, as a mask (lanes beyond them may hold anything)."""
    around = tuple(e + sum(h) for e, h in zip(shape, layout.halo, strict=True))
    whole = Layout(layout.dims).pack(np.ones(around))
    inside = layout.pack(np.ones(shape))
    return (whole > 0) & (inside == 0)


def test_workspace_is_allocated_around_everything():
    function = to_loops(softmax(2, 3))
    names = []
    stmt = function.body
    while isinstance(stmt, Alloc):
        names.append(stmt.buffer.name)
        stmt = stmt.body
    assert names == ["most", "power", "norm"]
