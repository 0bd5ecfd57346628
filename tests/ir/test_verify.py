"""The verifier names the violation; each case breaks one rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.graph import Constant, Graph, Node, Value
from farrier.ir.parser import parse_ir
from farrier.ir.types import DType, TensorType
from farrier.ops.verify import verify

_GOOD = [
    "@graph\ndef g(x: f32[2, 3]):\n    y: f32[3, 2] = Transpose(x, perm=(1, 0))\n    return y\n",
    """@graph
def g(x: f32[1, 20, 4, 4] @ layout(0, 1 / 16, 2, 3, 1 % 16, halo=((0, 0), (0, 0), (1, 1), (1, 1)))):
    def k(a: f32[1, 20, 4, 4] @ layout(0, 1 / 16, 2, 3, 1 % 16, halo=((0, 0), (0, 0), (1, 1), (1, 1)))):
        b: f32[1, 20, 4, 4] = Relu(a)
        return b
    y: f32[1, 20, 4, 4] = Fused[k](x)
    return y
""",  # noqa: E501
    """@program
def p(x: f32[4, 3]):
    s: f32[4] in workspace
    for i in axes(4):
        s[i] = sum(x[i, k] for k in axes(3))
    y: f32[4]
    for i in axes(4):
        y[i] = s[i] / 3.0 if 0 <= i and i < 2 else max(s[i], 0.0)
    return y
""",
    """@function
def f(x: f32[8], y: f32[8]):
    with alloc(f32[4] in register) as t:
        for i in parallel(2):
            for j in vectorized(4):
                t[j] = x[i * 4 + j]
            for k in vectorized(4):
                if i * 4 + k < 7:
                    y[i * 4 + k] = t[k]
            prefetch(x[i], level=1)
""",
]

_BAD = [
    # graphs
    ("@graph\ndef g(x: f32[2], x: f32[2]):\n    return x\n", "x is defined again"),
    (
        "@graph\ndef g(x: f32[2]):\n    x: f32[2] = Relu(x)\n    return x\n",
        "x is defined again by Relu",
    ),
    (
        "@graph\ndef g(x: f32[2]):\n    y: f32[3] = Relu(x)\n    return y\n",
        r"Relu: its operands give it the outputs \(f32\[2\]\)\ny: f32\[3\] = Relu\(x\)",
    ),
    (
        "@graph\ndef g(x: f32[2]):\n    y: i32[2] = Relu(x, origin='a/b')\n    return y\n",
        r"Relu \(from a/b\): its operands give it",
    ),
    (
        "@graph\ndef g(x: f32[2], z: f32[3]):\n    y: f32[3] = Add(x, z)\n    return y\n",
        "Add: ",
    ),
    (
        "@graph\ndef g(x: f32[2]):\n    y: f32[2] = Frobnicate(x)\n    return y\n",
        "Frobnicate: no operator has this name",
    ),
    (
        "@graph\ndef g(x: f32[2] @ layout(0 / 4, 0 % 8)):\n    return x\n",
        "the parts of axis 0 leave gaps or overlap",
    ),
    ("@graph\ndef g(x: f32[2, 2] @ layout(0)):\n    return x\n", r"places axes \[0\] of 2"),
    (
        "@graph\ndef g(x: f32[8] @ layout(0 / 4, 0 % 4, halo=((1, 1),))):\n    return x\n",
        "axis 0 is split and has a halo",
    ),
    (
        "@graph\ndef g(x: f32[8] @ layout(0, halo=((1, 1), (0, 0)))):\n    return x\n",
        "2 halos for 1 axes",
    ),
    (
        """@graph
def g(x: f32[2]):
    def k(a: f32[3]):
        return a
    y: f32[2] = Fused[k](x)
    return y
""",
        r"its region's inputs are typed otherwise: a: f32\[3\]",
    ),
    (
        """@graph
def g(x: f32[2]):
    def k():
        b: f32[2] = Relu(x)
        return b
    y: f32[2] = Fused[k]()
    return y
""",
        "nothing before defines it",
    ),
    # programs
    (
        "@program\ndef p(x: f32[4]):\n    y: f32[3]\n    for i in axes(4):\n        y[i] = x[i]\n"
        "    return y\n",
        r"stage y runs over \[4\], its buffer is \(3,\)",
    ),
    (
        "@program\ndef p(x: i32[4]):\n    y: f32[4]\n    for i in axes(4):\n        y[i] = x[i]\n"
        "    return y\n",
        "stage y computes i32, its buffer holds f32",
    ),
    (
        "@program\ndef p(x: f32[4]):\n    y: f32[4]\n    for i in axes(4):\n"
        "        y[i] = 1.0 + sum(x[k] for k in axes(4))\n    return y\n",
        "a Reduce stands only at the root",
    ),
    (
        "@program\ndef p(x: f32[4]):\n    y: f32[4]\n    for i in axes(4):\n"
        "        y[i] = sum(x[i] for i in axes(4))\n    return y\n",
        "two loops or axes run over i",
    ),
    ("@program\ndef p(x: f32[4]):\n    return x\n", "no stage writes the output x"),
    # functions
    (
        "@function\ndef f(x: f32[4]):\n    for i in serial(4):\n        x[i, i] = 1.0\n",
        r"2 indices for x\[4\]",
    ),
    ("@function\ndef f(x: f32[4]):\n    x[i] = 1.0\n", "no loop around runs over i"),
    ("@function\ndef f(x: f32[4]):\n    x[0] = 1\n", "stores i64 into x: f32"),
    ("@function\ndef f(x: f32[4]):\n    x[1.0] = 1.0\n", "an index of x is f32, not i64"),
    ("@function\ndef f(x: f32[4]):\n    x[0] = x[1] + f64(1.0)\n", "operands of f32 and f64"),
    ("@function\ndef f(x: f32[4]):\n    if x[0]:\n        x[0] = 1.0\n", "a condition is f32"),
    ("@function\ndef f(x: f32[4]):\n    if not x[0]:\n        pass\n", "not of f32"),
    ("@function\ndef f(x: f32[4]):\n    if x[0] and x[1]:\n        pass\n", "and of f32"),
    (
        "@function\ndef f(x: f32[4]):\n    for i in serial(2):\n        x[i] = 1.0\n"
        "    for i in serial(2):\n        x[i] = 2.0\n",
        "two loops run over i",
    ),
    (
        "@function\ndef f(x: f32[4]):\n    with alloc(f32[1] in local) as x:\n        x[0] = 1.0\n",
        "two buffers are called x",
    ),
    ("@function\ndef f(x: f32[4] in register):\n    pass\n", "the argument x is in scope register"),
    (
        "@function\ndef f(x: f32[4]):\n    for i in vectorized(4):\n"
        "        while x[i] < 1.0:\n            x[i] = x[i] + 1.0\n",
        "a while stands in a vectorized loop",
    ),
    (
        "@function\ndef f(x: f32[4]):\n    for i in vectorized(4):\n"
        "        with alloc(f32[1] in register) as v:\n            v[0] = x[i]\n"
        "            x[i] = v[0]\n",
        "all lanes of a vectorized loop share v",
    ),
    ("@function\ndef f(x: f32[4]):\n    while x[0]:\n        x[0] = 1.0\n", "a condition is f32"),
]


@pytest.mark.parametrize("text", _GOOD)
def test_good_ir_passes(text):
    verify(parse_ir(text))


@pytest.mark.parametrize(("text", "words"), _BAD)
def test_bad_ir_is_named(text, words):
    node = parse_ir(text)
    with pytest.raises(CompilerError, match=words):
        verify(node)


def test_a_buffer_that_changed_its_layout_is_found():
    """A store to a buffer that is not the one in scope: a schedule forgot to rewrite it."""
    text = "@function\ndef f(x: f32[4]):\n    x[0] = 1.0\n"
    function = parse_ir(text)
    stale = dataclasses.replace(function.params[0], dtype=DType.F64)
    broken = dataclasses.replace(function, params=(stale,))
    with pytest.raises(CompilerError, match=r"x is f64\[4\] in param, and used as f32\[4\]"):
        verify(broken)


def _value(name, *shape):
    return Value(name, TensorType(DType.F32, shape))


@pytest.mark.parametrize("name", ["in", "a b", "é", "1x", "a.b", ""])
def test_names_are_identifiers(name):
    value = _value(name, 2)
    with pytest.raises(CompilerError, match="it is no identifier"):
        verify(Graph("g", (value,), (), (), (value,)))


def test_what_a_node_reads_is_what_was_defined():
    x, other = _value("x", 2), _value("x", 3)
    node = Node("Relu", (other,), (_value("y", 3),))
    with pytest.raises(CompilerError, match=r"reads x: f32\[3\], but x: f32\[2\] is what is"):
        verify(Graph("g", (x,), (), (node,), node.outputs))
    late = Node("Relu", (_value("y", 2),), (_value("z", 2),))
    with pytest.raises(CompilerError, match="nothing before defines it"):
        verify(Graph("g", (x,), (), (late,), late.outputs))


def test_what_a_graph_returns_is_defined():
    with pytest.raises(CompilerError, match="nothing before defines it"):
        verify(Graph("g", (), (), (), (_value("x", 2),)))


def test_constants_are_as_typed():
    constant = Constant(_value("c", 2), np.zeros(3, np.float32))
    with pytest.raises(CompilerError, match=r"its data is float32\[3\]"):
        verify(Graph("g", (), (constant,), (), (constant.value,)))


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ((("b", 1), ("a", 1)), "canonical order"),
        ((("a", 1), ("a", 1)), "canonical order"),
        ((("origin", "x"),), "canonical order"),
        ((("a", np.int64(1)),), "no number"),
        ((("a", (1, None)),), "no number"),
    ],
)
def test_attributes_are_plain_and_sorted(attrs, words):
    x = _value("x", 2)
    node = Node("Relu", (x,), (_value("y", 2),), attrs)
    with pytest.raises(CompilerError, match=words):
        verify(Graph("g", (x,), (), (node,), node.outputs))
