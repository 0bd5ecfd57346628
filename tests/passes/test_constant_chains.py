"""Constants that chains merge into are rounded once, and those of 16 bits not at all."""

from __future__ import annotations

import numpy as np
import pytest
from graph_tools import SETTINGS, NetworkBuilder
from hypothesis import assume, given
from hypothesis import strategies as st

from farrier.ir.parser import parse_ir
from farrier.ops import run_graph
from farrier.passes import run_passes
from farrier.passes.simplify import simplify

factors = st.floats(2.0, 100.0, width=32)  # none is neutral


def merged(*steps):
    """The one constant that is left of a chain of operators by constants, in f32."""
    net = NetworkBuilder(0)
    x = net.input(2, 3)
    for op, constant in steps:
        x = net.add(op, x, net.array(np.array(constant, np.float32)))
    graph = simplify(net.graph(x))
    node = graph.nodes[-1]  # Nothing reads the nodes before it.
    assert node.inputs[0].name == graph.inputs[0].name
    constants = {constant.value.name: constant.data for constant in graph.constants}
    return node.op, float(constants[node.inputs[1].name])


@given(factors, factors)
def test_what_is_divided_and_multiplied_is_multiplied_by_the_nearest_quotient(divisor, factor):
    assume(np.float32(factor / divisor) != 1)  # Nothing is left of a factor of 1.
    op, actual = merged(("Div", divisor), ("Mul", factor))
    assert (op, actual) == ("Mul", np.float32(factor / divisor))


@given(st.lists(factors, min_size=2, max_size=5))
def test_a_chain_of_any_length_is_rounded_once(values):
    op, actual = merged(*(("Mul", value) for value in values))
    assert (op, actual) == ("Mul", np.float32(np.prod(np.array(values, np.float64))))
    op, actual = merged(*(("Add", value) for value in values))
    assert (op, actual) == ("Add", np.float32(np.sum(np.array(values, np.float64))))


NORMALIZED = """
@graph
def normalized(x: f16[1, 2, 4, 4]):
    w: f16[2, 2, 1, 1] = constant([1.001, 0.3, 0.7, 2.1])
    gamma: f16[2] = constant([0.3, 0.7])
    beta: f16[2] = constant([0.5, 0.25])
    mean: f16[2] = constant([0.0, 1.0])
    var: f16[2] = constant([1.0, 3.0])
    c: f16[1, 2, 4, 4] = Conv(x, w)
    y: f16[1, 2, 4, 4] = BatchNormalization(c, gamma, beta, mean, var)
    return y
"""


def test_no_weight_of_16_bits_is_rounded_again():
    graph = parse_ir(NORMALIZED)
    result = run_passes(graph, ["fold-batch-norm", "eliminate-dead-code"], SETTINGS)
    assert [node.op for node in result.nodes] == ["Conv", "Mul", "Add", "Cast"]
    before, after = ({c.value.name: c.data for c in each.constants} for each in (graph, result))
    np.testing.assert_array_equal(after["w"], before["w"])
    # The result is the one of exact arithmetic, rounded once.
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float16)
    exact = {name: np.float64(array).reshape(2, -1, 1, 1) for name, array in before.items()}
    w = np.float64(before["w"]).reshape(2, 2)
    sums = np.einsum("oi,nihw->nohw", w, np.float64(x))
    of = {name: array.reshape(1, 2, 1, 1) for name, array in exact.items() if name != "w"}
    y = (sums - of["mean"]) / np.sqrt(of["var"] + 1e-5) * of["gamma"] + of["beta"]
    (got,) = run_graph(result, {"x": x}).values()
    assert got.dtype == np.float16
    assert np.abs(got - y).max() <= 0.51 * np.spacing(np.abs(y).astype(np.float16)).max()


@pytest.mark.parametrize(
    ("steps", "ops"),
    [
        (("Div 3.0",), ["Div"]),
        (("Div 4.0",), ["Mul"]),
        (("Mul 0.1", "Mul 0.1"), ["Mul", "Mul"]),
        (("Mul 0.5", "Mul 3.0"), ["Mul"]),
    ],
)
def test_a_constant_of_16_bits_changes_only_if_it_stays_exact(steps, ops):
    lines, value = ["@graph", "def chain(x: f16[4]):"], "x"
    for number, (op, constant) in enumerate(step.split() for step in steps):
        lines += [
            f"    c{number}: f16[()] = constant({constant})",
            f"    y{number}: f16[4] = {op}({value}, c{number})",
        ]
        value = f"y{number}"
    graph = parse_ir("\n".join([*lines, f"    return {value}", ""]))
    result = run_passes(graph, ["simplify", "eliminate-dead-code"], SETTINGS)
    assert [node.op for node in result.nodes] == ops
