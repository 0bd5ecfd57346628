"""The derivatives of operators against finite differences in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from farrier.errors import UnsupportedOperatorError
from farrier.frontends.builder import Declared, built, resolve
from farrier.ir.types import DType
from farrier.ops import Kind, lookup, names, run_graph

# Results change by the square of the step, and arithmetic rounds by 1e-16 / STEP.
STEP, ERROR = 1e-5, 1e-6
OPERATORS = sorted(name for name in names() if lookup(name).derivative is not None)
ELEMENTWISE = [name for name in OPERATORS if lookup(name).kind is Kind.ELEMENTWISE]
OPERANDS = {"Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "Pow": 2, "Sum": 3, "Mean": 3, "Where": 3}
POSITIVE = ("Log", "Pow", "Sqrt")
ATTRS = {"Cast": {"to": "f64"}}
# The operands of nodes, by operator: shapes of f64, and constants; and their attributes.
SHAPES = {
    "Concat": [([(2, 3), (2, 1), (2, 2)], {"axis": -1})],
    "Dropout": [([(2, 3)], {})],
    "Expand": [([(2, 1), [2, 2, 3]], {})],
    "Flatten": [([(2, 3, 2)], {"axis": 2})],
    "Gemm": [
        ([(2, 3), (3, 4), (4,)], {"alpha": 0.5, "beta": 1.5}),
        ([(3, 2), (3, 4), (2, 1)], {"transA": 1}),
        ([(2, 3), (4, 3)], {"transB": 1, "alpha": 2.0}),
        ([(3, 2), (4, 3), ()], {"transA": 1, "transB": 1}),
    ],
    "Identity": [],  # The builder adds no node for it.
    "LogSoftmax": [([(2, 3)], {}), ([(2, 3)], {"axis": 0})],
    "MatMul": [
        ([(3,), (3,)], {}),
        ([(3,), (2, 3, 2)], {}),
        ([(2, 2, 3), (3,)], {}),
        ([(2, 1, 2, 3), (2, 3, 2)], {}),
    ],
    "ReduceMean": [([(2, 3, 2), [-1, 0]], {"keepdims": 0}), ([(2, 3)], {"keepdims": 1})],
    "ReduceSum": [([(2, 3)], {"keepdims": 0}), ([(2, 3)], {"noop_with_empty_axes": 1})],
    "ReduceSumSquare": [([(2, 3), [1]], {})],
    "Reshape": [([(2, 3), [3, -1]], {})],
    "Softmax": [([(2, 3)], {}), ([(2, 3)], {"axis": 0})],
    "Squeeze": [([(2, 1, 3), [1]], {})],
    "Transpose": [([(2, 3)], {}), ([(2, 3, 2)], {"perm": (1, 2, 0)})],
    "Unsqueeze": [([(2, 3), [0, 2]], {})],
    "View": [([(2, 3), [3, 2]], {})],
}


def assert_differentiates(name, operands, attrs, weights):
    """Compare the gradients of a weighted sum of a node's results with finite differences."""
    variables = [array for array in operands if array.dtype == np.float64]
    declared = [Declared(f"x{i}", DType.F64, x.shape) for i, x in enumerate(variables)]

    def build(b):
        inputs = iter([b.input(each.name) for each in declared])
        taken = [next(inputs) if x.dtype == np.float64 else b.constant(x) for x in operands]
        (y,) = b.node(name, taken, attrs, origin="node")
        scale = weights.uniform(0.5, 1.5, b.shape(y))
        z = b.add("Mul", y, b.constant(scale))
        b.output("z", z)
        sources = [each.name for each in declared]
        for source, gradient in zip(sources, b.gradients(z, sources, origin="dz"), strict=True):
            b.output(f"dz/d{source}", gradient)

    graph = built(resolve(declared, {}), build).graph

    def run(arrays):
        inputs = {value.name: x for value, x in zip(graph.inputs, arrays, strict=True)}
        results = run_graph(graph, inputs)
        return [results[value.name] for value in graph.outputs]

    _, *slopes = run(variables)
    for place, (array, slope) in enumerate(zip(variables, slopes, strict=True)):
        assert slope.shape == array.shape
        for at in np.ndindex(array.shape):
            sums = []
            for step in (STEP, -STEP):
                moved = [x.copy() for x in variables]
                moved[place][at] += step
                sums.append(run(moved)[0].sum())
            difference = (sums[0] - sums[1]) / (2 * STEP)
            np.testing.assert_allclose(slope[at], difference, atol=ERROR, rtol=ERROR)


def numbers(rng, name, shape):
    """Return numbers at a distance from 0, where functions may have edges."""
    x = rng.uniform(0.3, 1.7, shape)
    return x if name in POSITIVE else x * rng.choice([-1, 1], shape)


@pytest.mark.parametrize("name", ELEMENTWISE)
@settings(max_examples=5)
@given(data=st.data())
def test_elementwise(name, data):
    count = OPERANDS.get(name, 1)
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=2, max_side=3)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    operands = [
        np.asarray(numbers(rng, name, shape)) for shape in data.draw(shapes, label="shapes")[0]
    ]
    if name == "Where":
        operands[0] = np.asarray(operands[0] > 0)
    assert_differentiates(name, operands, ATTRS.get(name, {}), rng)


@pytest.mark.parametrize(
    ("name", "operands", "attrs"),
    [(name, *case) for name, cases in SHAPES.items() for case in cases],
)
def test_other_kinds(name, operands, attrs):
    rng = np.random.default_rng(20261128)
    arrays = [
        np.array(each) if isinstance(each, list) else np.asarray(numbers(rng, name, each))
        for each in operands
    ]
    assert_differentiates(name, arrays, attrs, rng)


def test_every_operator_with_a_derivative_is_compared():
    assert sorted([*ELEMENTWISE, *SHAPES]) == OPERATORS


def test_a_power_of_zero():
    rng = np.random.default_rng(0)
    assert_differentiates("Pow", [np.zeros(3), np.array([0, 1, 2])], {}, rng)


def test_a_value_that_nothing_depends_on_has_the_gradient_0():
    def build(b):
        y = b.node("Exp", ["x"], origin="y")[0]
        for name, gradient in zip("xz", b.gradients(y, ["x", "z"], origin="dy"), strict=True):
            b.output(name, gradient)

    declared = [Declared(name, DType.F32, (2,)) for name in "xz"]
    graph = built(resolve(declared, {}), build).graph
    x = np.float32([1, 2])
    results = run_graph(graph, {value.name: x for value in graph.inputs})
    by_x, by_z = (results[value.name] for value in graph.outputs)
    np.testing.assert_allclose(by_x, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(by_z, [0, 0])


def test_an_operator_without_a_derivative_is_refused():
    def build(b):
        y = b.node("Ceil", ["x"], origin="whole")[0]
        b.gradients(y, ["x"], origin="dy")

    with pytest.raises(UnsupportedOperatorError, match="gradient of Ceil"):
        built(resolve([Declared("x", DType.F32, (2,))], {}), build)
