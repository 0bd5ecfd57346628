"""The declarations of `compute`: guards, layouts, stage names, static operands."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import MemoryScope, Reduce, Select
from farrier.ir.graph import Constant, Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.ir.walk import walk
from farrier.lower.program import to_program
from farrier.ops import Kind, lookup, names

F32 = DType.F32


def blocked(halo: int = 0) -> Layout:
    return Layout.blocked(4, 1, 16, ((0, 0), (0, 0), (halo, halo), (halo, halo)))


def conv_region(halo: int, kernel: int, pad: int, bias: bool, out_halo: int = 0) -> Graph:
    x = Value("x", TensorType(F32, (1, 32, 6, 7), blocked(halo)))
    w = Value("w", TensorType(F32, (48, 32, kernel, kernel)))
    b = Value("b", TensorType(F32, (48,)))
    extents = (6 + 2 * pad - kernel + 1, 7 + 2 * pad - kernel + 1)
    y = Value("y", TensorType(F32, (1, 48, *extents), blocked(out_halo)))
    inputs = (x, w, b) if bias else (x, w)
    node = Node("Conv", inputs, (y,), attributes(kernel_shape=(kernel, kernel), pads=(pad,) * 4))
    return Graph("region", inputs, (), (node,), (y,))


def selects(program) -> int:
    return sum(isinstance(node, Select) for stage in program.stages for node in walk(stage))


@pytest.mark.parametrize(
    ("halo", "kernel", "pad", "guards"),
    [(0, 3, 1, 1), (1, 3, 1, 0), (2, 3, 1, 0), (1, 5, 2, 1), (0, 1, 0, 0), (0, 3, 0, 0)],
)
def test_a_halo_that_covers_the_padding_replaces_the_guard(halo, kernel, pad, guards):
    region = conv_region(halo, kernel, pad, bias=False)
    program = to_program(region, "conv")
    assert selects(program) == guards
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.static_shape).astype(np.float32) for v in region.inputs]
    feeds = {buffer.name: array for buffer, array in zip(program.inputs, arrays, strict=True)}
    (want,) = lookup("Conv").reference(arrays, dict(region.nodes[0].attrs))
    (got,) = evaluate(program, feeds).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_max_pool_guards_its_padding_whatever_the_halo():
    x = Value("x", TensorType(F32, (1, 16, 6, 6), blocked(1)))
    y = Value("y", TensorType(F32, (1, 16, 6, 6), blocked(0)))
    attrs = attributes(kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    region = Graph("region", (x,), (), (Node("MaxPool", (x,), (y,), attrs),), (y,))
    program = to_program(region, "pool")
    assert selects(program) == 1
    data = np.full((1, 16, 6, 6), -3.0, np.float32)
    assert evaluate(program, {program.inputs[0].name: data})["max_pool"].max() == -3.0


def test_stages_of_a_convolution():
    program = to_program(conv_region(1, 3, 1, bias=True, out_halo=1), "conv")
    raw, out = program.stages
    assert (raw.buffer.name, out.buffer.name) == ("conv", "conv_bias")
    assert [axis.name for axis in raw.axes] == ["n", "oc", "oy", "ox"]
    assert isinstance(raw.body, Reduce)
    assert [axis.name for axis in raw.body.axes] == ["ic", "kh", "kw"]
    assert (raw.buffer.scope, out.buffer.scope) == (MemoryScope.WORKSPACE, MemoryScope.PARAM)
    assert raw.buffer.layout == dataclasses.replace(blocked(), halo=())
    assert out.buffer.layout == blocked(1)


def test_names_of_stages_are_unique_and_avoid_inputs():
    x = Value("relu", TensorType(F32, (3,)))
    middle, y = Value("m", TensorType(F32, (3,))), Value("y", TensorType(F32, (3,)))
    nodes = (Node("Relu", (x,), (middle,)), Node("Relu", (middle,), (y,)))
    program = to_program(Graph("region", (x,), (), nodes, (y,)), "kernel")
    assert [stage.buffer.name for stage in program.stages] == ["relu_1", "relu_2"]


def test_literals_of_the_region_are_constants_of_the_expression():
    x, y = Value("x", TensorType(F32, (3,))), Value("y", TensorType(F32, (3,)))
    two = Constant(Value("c", TensorType(F32, ())), np.array(2.0, np.float32))
    region = Graph("region", (x,), (two,), (Node("Mul", (x, two.value), (y,)),), (y,))
    program = to_program(region, "kernel")
    assert [buffer.name for buffer in program.inputs] == ["x"]
    (got,) = evaluate(program, {"x": np.arange(3, dtype=np.float32)}).values()
    assert got.tolist() == [0.0, 2.0, 4.0]


def test_a_static_operand_must_be_a_constant_of_the_region():
    x, y = Value("x", TensorType(F32, (3, 4))), Value("y", TensorType(F32, (3,)))
    axes = Value("axes", TensorType(DType.I64, (1,)))
    node = Node("ReduceSum", (x, axes), (y,), attributes(keepdims=0))
    with pytest.raises(CompilerError, match="input 1 must be a constant of the region"):
        to_program(Graph("region", (x, axes), (), (node,), (y,)), "kernel")


def test_every_operator_but_the_folded_ones_computes():
    opaque = {name for name in names() if lookup(name).kind is Kind.OPAQUE}
    control = {name for name in names() if lookup(name).kind is Kind.CONTROL}
    idle = {name for name in names() if lookup(name).compute is None and lookup(name).nest is None}
    assert idle == opaque | control | {"BitCast"}  # BitCast is a view and never code.
    assert opaque == {"Shape", "Size", "EyeLike", "ConstantOfShape", "WinogradWeights"}
