"""Scales of Resize that sizes or values make, and sums along an axis that values decide."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import farrier
from farrier.errors import InputMismatchError
from farrier.frontends.builder.symbolic import as_array, fold
from farrier.ir.dim import dim, evaluate
from farrier.ir.types import DType, TensorType
from farrier.ops import lookup
from tests.control_flow.test_models import assert_as_onnxruntime, info, model, node, normal

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

# As torch's interpolate(size=…) is exported at opsets 10 and 11: sizes over sizes, as floats.
QUOTIENT = [
    node("Shape", ["x"], ["shape"]),
    node("Slice", ["shape", "zero", "two"], ["front"]),
    node("Concat", ["front", "target"], ["wanted"], axis=0),
    *(node("Cast", [name], [f"{name}_f"], to=FLOAT) for name in ("wanted", "shape")),
    node("Div", ["wanted_f", "shape_f"], ["scales"]),
]
KINDS = [
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "cubic"},
]
CONSTANTS = {"zero": np.array([0]), "two": np.array([2])}


def resized(kinds, constants):
    """One Resize a kind, by the same scales."""
    nodes = [node("Resize", ["x", "", "scales"], [f"y{i}"], **k) for i, k in enumerate(kinds)]
    inputs = [info("x", FLOAT, ["n", 2, "h", "w"])]
    inputs += [] if "target" in constants else [info("target", INT64, [2])]
    outputs = [info(f"y{i}") for i in range(len(kinds))]
    return model([*QUOTIENT, *nodes], inputs, outputs, CONSTANTS | constants)


def test_scales_that_sizes_make_are_sizes():
    artifact = assert_as_onnxruntime(
        resized(KINDS, {"target": np.array([12, 14])}),
        *({"x": normal(n, 2, h, w)} for n, h, w in ((1, 6, 7), (2, 4, 2), (1, 24, 28), (3, 1, 1))),
    )
    assert all(spec.shape[2:] == (12, 14) for spec in artifact.manifest.outputs)


def test_scales_that_values_make():
    cases = (((6, 7), (12, 14)), ((4, 3), (5, 8)), ((20, 13), (10, 13)), ((1, 1), (3, 1)))
    assert_as_onnxruntime(
        resized([*KINDS, {"mode": "cubic", "exclude_outside": 1}], {}),
        *({"x": normal(1, 2, *size), "target": np.array(target)} for size, target in cases),
    )


def test_scales_given_by_the_caller():
    kinds = (
        {"mode": "linear"},
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
    )
    data = model(
        [node("Resize", ["x", "", "scales"], [f"y{i}"], **kind) for i, kind in enumerate(kinds)],
        [info("x", FLOAT, ["n", 2, "w"]), info("scales", FLOAT, [3])],
        [info("y0"), info("y1")],
    )
    factors = ([1, 1, 2.5], [2, 1, 0.5], [1, 1, 1], [1, 1, 0.45])
    assert_as_onnxruntime(
        data, *({"x": normal(2, 2, 6), "scales": np.float32(each)} for each in factors)
    )


@pytest.mark.parametrize("rank", [1, 3])
def test_sums_along_an_axis_that_values_decide(rank):
    data = model(
        [node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=rank % 2)],
        [info("x", FLOAT, ["b", 4, 5][:rank]), info("axis", INT64, [])],
        [info("y")],
    )
    x = normal(*(3, 4, 5)[:rank])
    artifact = assert_as_onnxruntime(
        data, *({"x": x, "axis": np.array(axis)} for axis in range(-rank, rank))
    )
    for axis in (-rank - 1, rank):
        with pytest.raises(InputMismatchError, match=f"'y' .* gets {axis} .* an axis of {rank}"):
            artifact.run({"x": x, "axis": np.array(axis)})


SYMBOLS = {"h": dim("h", 1, 60, 7), "w": dim("w", 1, 60, 5)}
SCALAR = TensorType(DType.F32, ())
LEAVES = st.sampled_from([*SYMBOLS.values(), 1.0, 2.0, 12.0, 0.5])


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        LEAVES,
        lambda e: st.tuples(st.sampled_from(("Add", "Sub", "Mul", "Div")), e, e),
        max_leaves=5,
    ),
    st.integers(1, 60),
    st.integers(1, 60),
)
def test_arithmetic_of_sizes_as_floats_is_exact(tree, h, w):
    """Folded results equal those of rational numbers, rounded down and up as well."""
    sizes = {"h": h, "w": w}

    def folded(tree):
        if not isinstance(tree, tuple):
            exact = evaluate(tree, sizes) if not isinstance(tree, float) else tree
            return as_array(tree, DType.F32), Fraction(exact)
        op, *operands = tree
        (left, left_exact), (right, right_exact) = map(folded, operands)
        if left is None or right is None or (op == "Div" and right_exact == 0):
            return None, Fraction(0)
        exact = {
            "Add": lambda: left_exact + right_exact,
            "Sub": lambda: left_exact - right_exact,
            "Mul": lambda: left_exact * right_exact,
            "Div": lambda: left_exact / right_exact,
        }[op]()
        try:
            actual = fold(lookup(op), [left, right], {}, [SCALAR])
        except ZeroDivisionError:
            return None, exact
        return (None if actual is None else actual[0]), exact

    array, exact = folded(tree)
    if array is None or array.dtype != object:
        return
    for op, rounded in (("Floor", np.floor), ("Ceil", np.ceil)):
        actual = fold(lookup(op), [array], {}, [SCALAR])
        if actual is not None and actual[0].dtype == object:
            assert evaluate(actual[0].item(), sizes) == rounded(exact)


def test_a_quotient_that_is_computed_divides_by_sizes():
    """A linspace over the axis: a quotient that is not rounded is a float at run time."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["length"], to=FLOAT),
        node("Sub", ["length", "one"], ["spans"]),
        node("Div", ["one", "spans"], ["step"]),
        node("Mul", ["x", "step"], ["y"]),
    ]
    data = model(nodes, [info("x", FLOAT, ["n"])], [info("y")], {"one": np.float32([1])})
    artifact = farrier.compile(data, threads=1, verify=False)
    for n in (2, 7):
        x = normal(n)
        np.testing.assert_allclose(artifact.run({"x": x})["y"], x / (n - 1), rtol=1e-6)
