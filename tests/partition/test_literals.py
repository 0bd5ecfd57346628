"""Kernels that differ only in literals are one kernel, and its calls pass the literals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from farrier.ir.parser import parse_ir
from farrier.ops import run_graph
from farrier.partition import extract_tasks

LITERALS = """@graph
def g(x: f32[4, 4]):
    def one(x: f32[4, 4]):
        s: f32[1] = constant([{one}])
        t: f32[()] = constant(3.0)
        m: f32[4, 4] = {op}(x, s)
        y: f32[4, 4] = Add(m, t)
        return y
    a: f32[4, 4] = Fused[one](x)
    def two(x: f32[4, 4]):
        s: f32[1] = constant([{two}])
        t: f32[()] = constant(3.0)
        m: f32[4, 4] = {op}(x, s)
        y: f32[4, 4] = Add(m, t)
        return y
    b: f32[4, 4] = Fused[two](a)
    return b
"""


@pytest.mark.parametrize(
    ("op", "first", "second", "literal_inputs"),
    [
        ("Mul", 0.5, 0.25, 1),
        ("Sub", 0.5, 0.25, 1),
        ("Mul", 0.5, 0.5, 0),  # one kernel anyway
        ("Mul", 0.0, -0.0, 1),
        ("Pow", 2.0, 3.0, None),  # An exponent decides the code.
        ("Max", 0.5, 0.25, None),
    ],
)
def test_literals_that_differ_are_passed(op, first, second, literal_inputs):
    graph = parse_ir(LITERALS.format(op=op, one=first, two=second))
    tasks, program = extract_tasks(graph)
    assert len(tasks) == (2 if literal_inputs is None else 1)
    for task in tasks.values():
        literals = {float(c.data.reshape(-1)[0]) for c in task.region.constants}
        assert 3.0 in literals  # The literal of both stays.
        assert len(task.constant_inputs) == (literal_inputs or 0)
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    values = {constant.value.name: constant.data for constant in program.constants}
    values["x"] = np.abs(x)
    for call in program.calls:
        region = tasks[call.task].region
        operands = {v.name: values[o.name] for v, o in zip(region.inputs, call.inputs, strict=True)}
        values |= dict(
            zip((o.name for o in call.outputs), run_graph(region, operands).values(), strict=True)
        )
    expected = run_graph(graph, {"x": np.abs(x)})["b"]
    np.testing.assert_array_equal(values["b"], expected)


@given(st.lists(st.sampled_from([0.5, 0.25, 2.0]), min_size=2, max_size=6))
def test_one_literal_is_one_constant(scales):
    assume(len(set(scales)) > 1)
    body = "\n".join(
        f"""    def k{at}(x: f32[4, 4]):
        s: f32[1] = constant([{scale}])
        y: f32[4, 4] = Mul(x, s)
        return y
    y{at}: f32[4, 4] = Fused[k{at}](x)"""
        for at, scale in enumerate(scales)
    )
    names = ", ".join(f"y{at}" for at in range(len(scales)))
    graph = parse_ir(f"@graph\ndef g(x: f32[4, 4]):\n{body}\n    return {names}\n")
    tasks, program = extract_tasks(graph)
    assert len(tasks) == 1
    assert len(program.constants) == len(set(scales))
