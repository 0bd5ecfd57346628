"""Regions of operators, through loops and finalize, have the operators' results."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.expr import MemoryScope
from farrier.ir.graph import Graph, Value
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.types import Layout, TensorType
from farrier.ir.verify_kernel import verify_function, verify_program
from farrier.lower.loops import to_loops
from farrier.lower.program import to_program
from farrier.ops import run_graph
from tests.lowering import finalize

REGIONS = {
    "conv": """
@graph
def g(x: f32[1, 3, 6, 5], w: f32[4, 3, 3, 3], b: f32[4]):
    c: f32[1, 4, 3, 3] = Conv(x, w, b, dilations=(1, 1), group=1,
        kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
    y: f32[1, 4, 3, 3] = Relu(c)
    return y
""",
    "max pool": """
@graph
def g(x: f32[1, 5, 6, 5]):
    y: f32[1, 5, 3, 3] = MaxPool(x, kernel_shape=(3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
    return y
""",
    "gemm": """
@graph
def g(a: f32[3, 7], b: f32[7, 5], z: f32[3, 5]):
    m: f32[3, 5] = MatMul(a, b)
    s: f32[3, 5] = Add(m, z)
    y: f32[3, 5] = Sigmoid(s)
    return y
""",
    "softmax": """
@graph
def g(x: f32[2, 3, 7]):
    y: f32[2, 3, 7] = Softmax(x, axis=-1)
    return y
""",
    "concat": """
@graph
def g(a: f32[2, 3, 4], b: f32[2, 5, 4]):
    c: f32[2, 8, 4] = Concat(a, b, axis=1)
    y: f32[2, 4, 8] = Transpose(c, perm=(0, 2, 1))
    return y
""",
    "two outputs": """
@graph
def g(x: f32[3, 4]):
    h: f32[3, 4] = Tanh(x)
    y: f32[3, 4] = Mul(h, h)
    return h, y
""",
}


def _inputs(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {
        v.name: rng.standard_normal(v.type.static_shape).astype(np.float32) for v in graph.inputs
    }


def _run(graph: Graph) -> list[np.ndarray]:
    """The region's outputs, by way of loops."""
    program = to_program(graph, "kernel")
    verify_program(program)
    function = finalize(to_loops(program))
    verify_function(function)
    results = run_loops(function, _inputs(graph))
    return [results[buffer.name] for buffer in program.outputs]


def _expected(graph: Graph) -> list[np.ndarray]:
    return list(run_graph(graph, _inputs(graph)).values())


@pytest.mark.parametrize("name", REGIONS)
def test_a_region_s_loops_have_its_operators_results(name):
    graph = parse_ir(REGIONS[name])
    for actual, expected in zip(_run(graph), _expected(graph), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["conv", "max pool"])
@pytest.mark.parametrize("halo", [0, 1])
def test_blocked_layouts_with_a_halo_do_not_change_results(name, halo):
    graph = parse_ir(REGIONS[name])
    around = ((0, 0), (0, 0), (halo, halo), (halo, halo))

    def blocked(value: Value) -> Value:
        if value.type.rank != 4 or value.name == "w":
            return value
        # A max pool's padding is -inf, so a halo is of no use to it, and does no harm.
        layout = Layout.blocked(4, 1, 4, around if halo else ())
        kind = TensorType(value.type.dtype, value.type.shape, layout)
        return dataclasses.replace(value, type=kind)

    nodes = tuple(
        dataclasses.replace(
            node,
            inputs=tuple(v if v is None else blocked(v) for v in node.inputs),
            outputs=tuple(map(blocked, node.outputs)),
        )
        for node in graph.nodes
    )
    changed = Graph(
        graph.name,
        tuple(map(blocked, graph.inputs)),
        graph.constants,
        nodes,
        tuple(map(blocked, graph.outputs)),
    )
    for actual, expected in zip(_run(changed), _expected(graph), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_constant_inputs_and_outputs_have_their_scopes_and_places():
    graph = parse_ir(REGIONS["gemm"])
    program = to_program(graph, "kernel", ["b"])
    assert [b.scope for b in program.inputs] == [
        MemoryScope.PARAM,
        MemoryScope.CONSTANT,
        MemoryScope.PARAM,
    ]
    assert [b.scope for b in program.outputs] == [MemoryScope.PARAM]
    function = to_loops(program)
    assert [b.name for b in function.params] == ["a", "b", "z", program.outputs[0].name]


def test_an_operator_that_is_never_computed_is_refused():
    text = """
@graph
def g(x: f32[2, 3]):
    y: i64[2] = Shape(x)
    return y
"""
    with pytest.raises(CompilerError, match="Shape"):
        to_program(parse_ir(text), "kernel")
