"""The text of every node reads back as the same node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from ir_strategies import functions, graphs, programs

from farrier.errors import UsageError
from farrier.ir.expr import Expr
from farrier.ir.graph import Constant, Graph, Value
from farrier.ir.parser import ParseError, parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.types import DType, TensorType
from farrier.ir.walk import walk

# Whole graphs and nests: to draw one takes a tenth of a second.
_SOME = settings(max_examples=settings.default.max_examples // 3)


def arrays_of(graph):
    return {node.digest: node.data for node in walk(graph) if isinstance(node, Constant)}


@_SOME
@given(graphs())
def test_a_graph_reads_back(graph):
    again = parse_ir(print_ir(graph), arrays_of(graph))
    assert again == graph
    # Origins ride outside equality, so the text is compared too.
    assert print_ir(again) == print_ir(graph)


@_SOME
@given(programs())
def test_a_program_reads_back(program):
    assert parse_ir(print_ir(program)) == program


@_SOME
@given(functions())
def test_a_function_reads_back(function):
    assert parse_ir(print_ir(function)) == function


@_SOME
@given(programs())
def test_equal_expressions_are_read_as_one_node(program):
    nodes = {}
    for node in walk(parse_ir(print_ir(program))):
        if isinstance(node, Expr):
            assert nodes.setdefault(node, node) is node


def test_the_notation():
    text = """@graph(n=dim(1, 8, 4), k=dim(0, 4*n, 16))
def net(x: f32[1, n, 4]):
    w: f32[2] @ layout(0 / 16, 0 % 16, halo=((1, 1),)) = constant([1.0, inf])
    def body(a: f32[1, n, 4]):
        b: f32[1, n, 4] = Relu(a)
        return b
    y: f32[1, 2*n + 1, k]
    z: i64[()]
    y, z = Fused[body](x, None, w, axes=(1,), mode='same', origin='block/1')
    return y, z
"""
    graph = parse_ir(text)
    assert print_ir(graph) == text
    assert graph.nodes[0].origin == "block/1"
    assert graph.nodes[0].attr("axes") == (1,)
    assert graph.constants[0].data.tolist() == [1.0, float("inf")]


def test_a_loop_nest_in_text():
    text = """@function
def scale(x: f32[64], y: f32[64] @ layout(0)):
    for i in parallel(4):
        with alloc(f32[16] in register) as t:
            for j in vectorized(16):
                t[j] = x[i * 16 + j] * 2.0 if i * 16 + j < 60 else 0.0
            prefetch(x[(i + 1) // 2 % 4], level=2)
            if i == 3 and not (0 < i or i < -1):
                intrinsic('dot', y[i], tile(x[16 * i], 0), t[()], tile(x[i], 0, steps=(2,)))
            else:
                pass
"""
    assert print_ir(parse_ir(text)) == text


def test_large_constants_are_named_by_content():
    data = np.arange(17, dtype=np.float32)
    value = Value("c", TensorType(DType.F32, (17,)))
    constant = Constant(value, data)
    graph = Graph("g", (), (constant,), (), (value,))
    text = print_ir(graph)
    assert constant.digest in text
    assert parse_ir(text, {constant.digest: data}) == graph
    with pytest.raises(ParseError, match="no array with the sha256"):
        parse_ir(text)
    with pytest.raises(ParseError, match="not as c is typed"):
        parse_ir(text, {constant.digest: data.reshape(1, 17)})


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "empty"),
        ("@graph\ndef g(x: f32[1]:\n    return x\n", 2, 16, "invalid syntax"),
        ("@graph\ndef g(x: f33[1]):\n    return x\n", 2, 10, "no dtype is called f33"),
        ("@graph\ndef g(x):\n    return x\n", 2, 7, "x has no type"),
        ("@graph\ndef g(x: f32[1]):\n    return y\n", 3, 12, "y is not defined"),
        ("@graph\ndef g(x: f32[1]):\n    y: f32[1] = Relu(z)\n    return y\n", 3, 22, "z is not"),
        ("@graph\ndef g(x: f32[1]):\n    x\n", 3, 5, "does not end in return"),
        ("@graph\ndef g():\n    y: f32[1] = Fused[b]()\n    return y\n", 3, 17, "regions"),
        ("@graph\ndef g():\n    y: f32[1]\n    z = Op()\n    return y\n", 4, 5, "declared"),
        ("@graph\ndef g():\n    y: i8[1] = constant([300])\n    return y\n", 3, 16, "300"),
        ("@banana\ndef g():\n    return\n", 1, 2, "unknown kind of IR @banana"),
        ("x = 1\n", 1, 1, "expected one definition"),
        ("@function\ndef f(x: f32[N]):\n    pass\n", 2, 14, "N is not defined"),
        ("@function\ndef f(x: f32[1] in attic):\n    pass\n", 2, 10, "no scope is called attic"),
        ("@function\ndef f(x: f32[1]):\n    x[0] = lambda: 0\n", 3, 12, "expected an expression"),
        ("@function\ndef f(x: f32[1]):\n    return 1\n", 3, 5, "expected a loop"),
        ("@program\ndef f(x: f32[1]):\n    x[0] = 1.0\n    return x\n", 3, 5, "at its axes"),
        ("@graph\ndef g(x: f32[1] @ layout(x)):\n    return x\n", 2, 26, "expected an integer"),
    ],
)  # fmt: skip
def test_malformed_text_names_its_place(text, line, column, words):
    with pytest.raises(ParseError, match=words) as caught:
        parse_ir(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert isinstance(caught.value, UsageError)
