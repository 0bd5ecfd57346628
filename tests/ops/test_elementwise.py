"""Unary, binary and logical operators, activations, and their behaviour at the edges of floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import farrier
from tests.ops.conftest import one_node_model

SHAPES = [(), (1,), (7,), (2, 3, 5), (1, 13, 1, 4)]
QUIET = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def f32(rng, shape, scale=1.0):
    return np.asarray(rng.standard_normal(shape) * scale, np.float32)


UNARY = [
    "Abs",
    "Neg",
    "Exp",
    "Sin",
    "Cos",
    "Erf",
    "Tanh",
    "Tan",
    "Sinh",
    "Cosh",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Reciprocal",
]


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_one_operand(check_operator, rng, op, shape):
    check_operator(op, [f32(rng, shape, 2.0)], tolerance=2e-5)


@pytest.mark.parametrize("op", ["Sqrt", "Log"])
def test_functions_of_positive_numbers(check_operator, rng, op):
    check_operator(op, [np.abs(f32(rng, (3, 11))) + 0.1])


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atan", "Asinh"])
def test_inverse_functions(check_operator, rng, op):
    ends = np.array([-1, 1, 0, -0.0, 0.5, 1e-4, -1e-4, np.nan], np.float32)
    check_operator(op, [np.concatenate([ends, rng.uniform(-1, 1, 99).astype(np.float32)])])
    if op.startswith("At") or op == "Asinh":
        check_operator(op, [f32(rng, (7, 13), 50.0)])


def test_inverse_hyperbolic_functions(check_operator, rng):
    check_operator("Atanh", [rng.uniform(-0.9, 0.9, 17).astype(np.float32)], tolerance=2e-5)
    check_operator("Acosh", [rng.uniform(1.1, 9.0, 17).astype(np.float32)], tolerance=2e-5)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.3}),
        ("ThresholdedRelu", {"alpha": 0.7}),
        ("Sigmoid", {}),
        ("HardSigmoid", {"alpha": 0.4, "beta": 0.3}),
        ("HardSigmoid", {}),
        ("HardSwish", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("Elu", {"alpha": 1.7}),
        ("Celu", {"alpha": 0.6}),
        ("Selu", {}),
        ("Mish", {"opset": 18}),
        ("Gelu", {"opset": 20}),
        ("Gelu", {"opset": 20, "approximate": "tanh"}),
        ("Shrink", {"bias": 0.2, "lambd": 0.6}),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_activations(check_operator, rng, op, attrs, scale):
    check_operator(op, [f32(rng, (2, 5, 7), scale)], tolerance=5e-6, **attrs)


def test_swish(check_operator, rng):
    x = f32(rng, (3, 5))
    check_operator("Swish", [x], opset=24, alpha=1.3, expected=[x / (1 + np.exp(-1.3 * x))])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "PRelu"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3, 5), (2, 3, 5)), ((4, 3, 5), (3, 1)), ((7, 1), (1,)), ((1, 5, 1), ())],
)
def test_binary_operators(check_operator, rng, op, left, right):
    x = f32(rng, left)
    check_operator(
        op, [np.abs(x) if op == "Pow" else x, np.asarray(f32(rng, right) + 3)], tolerance=1e-5
    )


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 4.0, -1.0, 1.5])
def test_powers_of_a_literal(check_operator, rng, exponent):
    x = np.abs(f32(rng, (5, 3))) + 0.1
    check_operator("Pow", [x], static={1: np.array(exponent, np.float32)}, tolerance=1e-5)


@QUIET
@given(data=st.data(), op=st.sampled_from(["Add", "Sub", "Mul", "Less", "Max"]))
def test_broadcasting(check_operator, data, op):
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=4))
    masks = [data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))] * 2
    masks[1] = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    skip = data.draw(st.integers(0, len(shape)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    left, right = ([1 if is_one else n for n, is_one in zip(shape, m, strict=True)] for m in masks)
    check_operator(op, [f32(rng, left), f32(rng, right[skip:])], opset=13)


@pytest.mark.parametrize("op", ["Min", "Max", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_variadic_operators(check_operator, rng, op, count):
    check_operator(op, [f32(rng, (count, 3)), f32(rng, (1, 3)), f32(rng, ())][:count])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_division_rounds_towards_zero(check_operator, rng, dtype):
    x = rng.integers(-40, 40, (5, 9)).astype(dtype)
    y = rng.integers(1, 9, (5, 9)).astype(dtype) * rng.choice([-1, 1], (5, 9)).astype(dtype)
    check_operator("Div", [x, y])
    check_operator("Mod", [x, y])
    check_operator("Mod", [x, y], fmod=1)


def test_integer_division_never_traps(check_operator):
    lowest = np.iinfo(np.int32).min
    x, y = np.array([[7], [lowest], [-3]], np.int32), np.array([0, -1, 2], np.int32)
    quotients = np.array([[0, -7, 3], [0, lowest, lowest // 2], [0, 3, -1]], np.int32)
    check_operator("Div", [x, y], expected=[quotients])


def test_float_remainder(check_operator, rng):
    x, y = f32(rng, (4, 5), 9.0), np.abs(f32(rng, (4, 5))) + 0.5
    check_operator("Mod", [x, y], fmod=1, tolerance=1e-5)


@pytest.mark.parametrize(("dtype", "bits"), [(np.float16, 8), (np.float32, 25), (np.float64, 12)])
def test_float_remainder_is_exact(dtype, bits):
    """Quotients of up to 2**50, of one sign and of both, none of which is rounded."""
    rng = np.random.default_rng(7)
    x, y = (rng.standard_normal(999) * 2.0 ** rng.integers(-bits, bits, 999) for _ in range(2))
    x[:8] = [-2.5, 2.5, -0.0, 0.0, np.inf, np.nan, 3.0, -3.0]
    y[:8] = [1.25, -1.25, 1.0, -1.0, 1.0, 1.0, np.inf, -np.inf]
    x, y = x.astype(dtype), y.astype(dtype)
    with np.errstate(invalid="ignore"):
        expected = np.fmod(x, y)
    model = one_node_model("Mod", [x, y], {}, 1, 18, {"fmod": 1})
    (result,) = farrier.compile(model, verify=False).run({"x0": x, "x1": y}).values()
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
def test_comparisons(check_operator, rng, op, dtype):
    check_operator(op, [rng.integers(0, 3, (5, 7)).astype(dtype) for _ in range(2)])


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(check_operator, rng, op):
    check_operator(op, [rng.random((3, 5)) < 0.5, rng.random((5,)) < 0.5])


def test_not_and_where(check_operator, rng):
    condition = rng.random((3, 1, 5)) < 0.5
    check_operator("Not", [condition])
    check_operator("Where", [condition, f32(rng, (4, 5)), f32(rng, (3, 4, 1))])


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e38, -1e-38, 2.5, -2.5], np.float32)


@pytest.mark.parametrize(
    "op", ["Abs", "Neg", "Exp", "Sqrt", "Log", "Floor", "Round", "IsNaN", "Erf"]
)
def test_special_values(check_operator, op):
    check_operator(op, [SPECIAL])


@pytest.mark.parametrize("attrs", [{}, {"detect_negative": 0}, {"detect_positive": 0}])
def test_infinities_by_sign(check_operator, attrs):
    check_operator("IsInf", [SPECIAL], **attrs)


@pytest.mark.parametrize("op", ["Add", "Mul", "Div", "Less", "Equal"])
def test_special_values_meet(check_operator, op):
    check_operator(op, [SPECIAL[:, None], SPECIAL[None, :]])


@pytest.mark.parametrize("op", ["Max", "Min", "Relu"])
def test_nan_is_not_swallowed(check_operator, op):
    inputs = [SPECIAL] if op == "Relu" else [SPECIAL, SPECIAL[::-1].copy()]
    formulas = {"Max": np.maximum, "Min": np.minimum, "Relu": lambda x: np.maximum(x, 0)}
    check_operator(op, inputs, expected=[formulas[op](*inputs)])


@pytest.mark.parametrize(
    ("low", "high"), [(None, None), (-0.5, None), (None, 0.25), (-0.5, 0.25), (0.0, 6.0)]
)
def test_clip(check_operator, rng, low, high):
    static = {i: np.array(b, np.float32) for i, b in ((1, low), (2, high)) if b is not None}
    check_operator("Clip", [f32(rng, (3, 7))], static=static)


@pytest.mark.parametrize("source", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("target", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_])
def test_casts(check_operator, rng, source, target):
    from onnx import helper

    x = rng.integers(0, 100, (4, 5)).astype(source)
    if x.dtype.kind == "f":
        x += source(0.75)
    check_operator("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("target", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64])
def test_casts_of_what_an_integer_does_not_hold(check_operator, source, target):
    from onnx import helper

    edges = [np.nan, np.inf, -np.inf, -2.9, 2.9, 255.5, 256, -129, 300.7, -300.7, 6e4, -6e4]
    edges += [] if source is np.float16 else [2**31, -(2**31), 5e9, -5e9, 2.0**63, -(2.0**63), 1e30]
    x = np.array(edges, source)
    check_operator("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
