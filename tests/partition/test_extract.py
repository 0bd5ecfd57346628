"""Kernels that compute the same are one task, however they are written."""

from __future__ import annotations

import inspect
import re
import textwrap

import numpy as np
import pytest

from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.partition import canonical_region, extract_tasks, task_name

_TWICE = """@graph
def g(x: f32[1, 4, 3, 3], r: f32[1, 4, 3, 3]):
    w: f32[4, 4, 1, 1] = constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    v: f32[4, 4, 1, 1] = constant([2.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    def one(x: f32[1, 4, 3, 3], w: f32[4, 4, 1, 1], r: f32[1, 4, 3, 3]):
        c: f32[1, 4, 3, 3] = Conv(x, w, origin='conv1')
        d: f32[1, 4, 3, 3] = Neg(r, origin='neg1')
        a: f32[1, 4, 3, 3] = Add(c, d, origin='add1')
        return a
    a: f32[1, 4, 3, 3] = Fused[one](x, w, r, origin='conv1,neg1,add1')
    def two(skip: f32[1, 4, 3, 3], v: f32[4, 4, 1, 1], a: f32[1, 4, 3, 3]):
        q: f32[1, 4, 3, 3] = Neg(skip)
        p: f32[1, 4, 3, 3] = Conv(a, v)
        b: f32[1, 4, 3, 3] = Add(p, q)
        return b
    b: f32[1, 4, 3, 3] = Fused[two](x, v, a)
    return b
"""  # noqa: E501


def test_two_calls_of_one_task():
    graph = parse_ir(_TWICE)
    verify(graph)
    tasks, program = extract_tasks(graph)
    (task,), calls = tasks.values(), program.calls
    assert list(tasks) == [task.key] == [call.task for call in calls[:1]]
    assert calls[1].task == task.key
    assert re.fullmatch("[0-9a-f]{64}", task.key)
    assert task.constant_inputs == {"x1"}
    # Each call lists its values in the order of the task's inputs.
    assert [v.name for v in calls[0].inputs] == ["x", "w", "r"]
    assert [v.name for v in calls[1].inputs] == ["a", "v", "x"]
    assert [v.name for v in calls[0].outputs] == ["a"]
    assert calls[0].origin == "conv1,neg1,add1"


def test_calls_compute_what_the_graph_does():
    graph = parse_ir(_TWICE)
    rng = np.random.default_rng(0)
    shape = (1, 4, 3, 3)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name in ("x", "r")}
    arrays = dict(graph.constant_data()) | inputs
    tasks, program = extract_tasks(graph)
    for call in program.calls:
        region = tasks[call.task].region
        verify(region)
        operands = (arrays[value.name] for value in call.inputs)
        names = (value.name for value in region.inputs)
        results = run_graph(region, dict(zip(names, operands, strict=True)))
        arrays |= {v.name: r for v, r in zip(call.outputs, results.values(), strict=True)}
    np.testing.assert_array_equal(arrays["b"], run_graph(graph, inputs)["b"])


_BASE = """@graph
def g(x: f32[1, 16, 4, 4], w: f32[16, 16, 3, 3]):
    def k(x: f32[1, 16, 4, 4], w: f32[16, 16, 3, 3]):
        low: f32[()] = constant(0.0)
        c: f32[1, 16, 4, 4] = Conv(x, w, pads=(1, 1, 1, 1))
        y: f32[1, 16, 4, 4] = Max(c, low)
        return y
    y: f32[1, 16, 4, 4] = Fused[k](x, w)
    return y
"""


def _key(text):
    (task,) = extract_tasks(parse_ir(text))[0].values()
    return task.key


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("low", "floor_", True),
        ("c: f32[1, 16, 4, 4] = Conv", "d: f32[1, 16, 4, 4] = Conv", True),
        ("k(", "other(", True),
        ("constant(0.0)", "constant(1.0)", False),
        ("Max", "Min", False),
        ("pads=(1, 1, 1, 1)", "dilations=(1, 1), pads=(1, 1, 1, 1)", False),
        ("f32", "f64", False),
        ("x: f32[1, 16, 4, 4]", "x: f32[1, 16, 4, 4] @ layout(0, 1 / 8, 2, 3, 1 % 8)", False),
    ],
)
def test_the_key_is_the_computation(old, new, same):
    text = _BASE.replace(old, new)
    text = text.replace("Max(c", "Max(d") if "d:" in new else text
    text = text.replace("Fused[k]", "Fused[other]") if new == "other(" else text
    assert (_key(text) == _key(_BASE)) is same


def test_a_constant_weight_is_another_task():
    """Its layout is the schedule's choice, which that of an input is not."""
    weights = ", ".join(["1.0"] * 16)
    base = _BASE.replace("16, 16, 3, 3", "1, 16, 1, 1").replace("pads=(1, 1, 1, 1)", "group=1")
    base = base.replace("c: f32[1, 16, 4, 4]", "c: f32[1, 1, 4, 4]")
    base = base.replace("y: f32[1, 16, 4, 4]", "y: f32[1, 1, 4, 4]")
    constant = base.replace(
        "def g(x: f32[1, 16, 4, 4], w: f32[1, 16, 1, 1]):",
        f"def g(x: f32[1, 16, 4, 4]):\n    w: f32[1, 16, 1, 1] = constant([{weights}])",
    )
    assert _key(base) != _key(constant)


def test_the_docstring_of_the_canonical_form_is_true():
    actual = re.search(r"before:\n(.*?)\nafter:\n(.*)", inspect.getdoc(canonical_region), re.DOTALL)
    before, after = (textwrap.dedent(part).strip() + "\n" for part in actual.groups())
    canonical, order = canonical_region(parse_ir(before))
    assert print_ir(canonical) == after
    assert order == (2, 0, 1)
    again, same = canonical_region(canonical)
    assert again == canonical
    assert same == (0, 1, 2)


@pytest.mark.parametrize(
    ("region", "name"),
    [
        (
            "(x: f32[1, 64, 56, 56], w: f32[64, 64, 3, 3], r: f32[1, 64, 56, 56]):\n"
            "    a: f32[1, 64, 56, 56] = Conv(x, w, pads=(1, 1, 1, 1))\n"
            "    b: f32[1, 64, 56, 56] = Add(a, r)\n    y: f32[1, 64, 56, 56] = Relu(b)\n",
            "conv3x3_s1_64_64x56x56_add_relu",
        ),
        (
            "(x: f32[2, 32, 8, 8], w: f32[32, 1, 3, 3]):\n"
            "    y: f32[2, 32, 4, 4] = Conv(x, w, pads=(1, 1, 1, 1), strides=(2, 2), group=32)\n",
            "depthwise3x3_s2_32_2x32x4x4",
        ),
        (
            "(x: f32[1, 8, 8, 8], w: f32[8, 4, 1, 3]):\n"
            "    y: f32[1, 8, 8, 2] = Conv(x, w, dilations=(1, 2), strides=(1, 2), group=2)\n",
            "conv1x3_s1x2_d1x2_g2_8_8x8x2",
        ),
        (
            "(x: f32[12, 128, 64], w: f32[12, 64, 128]):\n"
            "    y: f32[12, 128, 128] = MatMul(x, w)\n",
            "matmul_12x128x128_k64",
        ),
        (
            "(x: f32[1, 8, 8, 8]):\n    y: f32[1, 8, 4, 4] = MaxPool(x, kernel_shape=(2, 2), "
            "strides=(2, 2))\n",
            "maxpool2x2_s2_8x4x4",
        ),
        (
            "(x: f32[3]):\n    a: f32[3] = Relu(x)\n    b: f32[3] = Exp(a)\n"
            "    c: f32[3] = Neg(b)\n    d: f32[3] = Abs(c)\n"
            "    e: f32[3] = Sqrt(d)\n    f: f32[3] = Log(e)\n"
            "    y: f32[3] = Tanh(f)\n",
            "relu_3_exp_neg_abs_sqrt_and_2_more",
        ),
        ("(x: f32[()]):\n    y: f32[()] = Relu(x)\n", "relu_scalar"),
    ],
)
def test_names_are_readable(region, name):
    graph = parse_ir(f"@graph\ndef k{region}    return y\n")
    verify(graph)
    assert task_name(graph) == name
