"""Every function of one number, and Pow, in units in the last place over all exponents."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph

Array = np.ndarray
Wide = np.longdouble  # It has 64 bits of mantissa on x86-64, and 113 on aarch64.
MICROSOFT = "com.microsoft"
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}
LN2 = np.log(Wide(2))


def below(x: Array) -> Array:
    """Return the standard normal distribution function: its tails by Laplace's continued fraction,
    the middle by the series of the error function."""
    size = np.minimum(np.abs(x), 60)
    middle = np.minimum(size, 2.5)
    term = total = middle
    for k in range(1, 60):
        term = -term * middle * middle * (2 * k - 1) / (2 * k * (2 * k + 1))
        total = total + term
    root = np.sqrt(2 * np.arccos(Wide(-1)))
    fraction = far = np.maximum(size, 2.5)
    for k in range(300, 0, -1):
        fraction = far + k / fraction
    tail = np.exp(-far * far / 2) / root / fraction
    tail = np.where(size < 2.5, Wide(0.5) - total / root, np.where(np.isinf(x), 0, tail))
    return np.where(x < 0, tail, 1 - tail)


def sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.where(x < 0, decay, 1) / (1 + decay)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: Array) -> Array:
    """Return erf by its series near 0, where 2 * below(...) - 1 would lose digits."""
    total = term = np.clip(x, -1, 1)
    for k in range(1, 40):
        term = -term * np.clip(x, -1, 1) ** 2 / k
        total = total + term / (2 * k + 1)
    near = 2 / np.sqrt(np.arccos(Wide(-1))) * total
    return np.where(
        np.abs(x) < 1, near, np.sign(x) * (1 - 2 * below(-np.abs(x) * np.sqrt(Wide(2))))
    )


def gelu_tanh(x: Array) -> Array:
    slope = 2 * np.sqrt(2 / np.arccos(Wide(-1)))
    return x * sigmoid(slope * (x + Wide("0.044715") * x * x * x))


def single(value: float) -> Wide:
    """An attribute, which is an f32."""
    return Wide(np.float32(value))


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    exact: Callable[..., Array]
    attrs: dict[str, object] = dataclasses.field(default_factory=dict)
    bound: float = 4.0  # In units in the last place; the formula may lose more than 4.
    domain: str = ""
    only: type | None = None


ALPHA, GAMMA = single(1.7), single(1.1)
CASES = [
    *(
        Case(op, getattr(np, name))
        for op, name in {
            "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos", "Tan": "tan",
            "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh",
            "Tanh": "tanh", "Asinh": "arcsinh", "Acosh": "arccosh", "Atanh": "arctanh",
            "Reciprocal": "reciprocal", "Abs": "abs", "Neg": "negative", "Floor": "floor",
            "Ceil": "ceil", "Round": "rint",
        }.items()
    ),
    Case("Erf", erf),
    Case("Sigmoid", sigmoid),
    Case("Softplus", softplus),
    Case("Softsign", lambda x: x / (1 + np.abs(x))),
    Case("Relu", lambda x: np.maximum(x, 0)),
    Case("LeakyRelu", lambda x: np.where(x < 0, x * ALPHA, x), {"alpha": 1.7}),
    Case("Elu", lambda x: np.where(x < 0, np.expm1(x) * ALPHA, x), {"alpha": 1.7}),
    Case(
        "Celu",
        lambda x: np.maximum(x, 0) + np.minimum(np.expm1(x / ALPHA) * ALPHA, 0),
        {"alpha": 1.7},
        only=np.float32,
    ),
    Case(
        "Selu",
        lambda x: np.where(x > 0, x, np.expm1(x) * ALPHA) * GAMMA,
        {"alpha": 1.7, "gamma": 1.1},
    ),
    Case("Mish", lambda x: x * np.tanh(softplus(x))),
    Case("Gelu", lambda x: x * below(x), bound=8),
    Case("Gelu", gelu_tanh, {"approximate": "tanh"}),
    Case("Swish", lambda x: x * sigmoid(x)),
    Case("Swish", lambda x: x * sigmoid(x * -ALPHA), {"alpha": -1.7}),
    Case("HardSwish", lambda x: x * np.clip(x + 3, 0, 6) / 6),
    Case(
        "HardSigmoid",
        lambda x: np.clip(x * single(0.2) + single(0.5), 0, 1),
    ),
    Case("Gelu", lambda x: x * below(x), bound=8, domain=MICROSOFT, only=np.float32),
    Case("FastGelu", gelu_tanh, domain=MICROSOFT, only=np.float32),
    Case(
        "QuickGelu",
        lambda x: x * sigmoid(x * single(1.702)),
        domain=MICROSOFT,
        only=np.float32,
    ),
]  # fmt: skip


POWERS = (-2.0, -1.0, 0.5, 0.75, 2.0, 3.0, 4.0)  # Each has a form of its own.


def cases_of(dtype: type) -> list[Case]:
    return [case for case in CASES if case.only in (None, dtype)]


def model(dtype: type, cases: Sequence[Case]) -> bytes:
    """Some functions of one input, and a power of two."""
    kind = KINDS[np.dtype(dtype)]
    nodes = [
        helper.make_node(case.op, ["x"], [f"y{i}"], domain=case.domain, **case.attrs)
        for i, case in enumerate(cases)
    ]
    nodes.append(helper.make_node("Pow", ["x", "e"], ["power"]))
    nodes += [helper.make_node("Pow", ["x", f"c{c}"], [f"power{c}"]) for c in POWERS]
    inputs = [helper.make_tensor_value_info(name, kind, ["n"]) for name in ("x", "e")]
    outputs = [onnx.ValueInfoProto(name=node.output[0]) for node in nodes]
    constants = [numpy_helper.from_array(np.array(c, dtype), f"c{c}") for c in POWERS]
    graph = helper.make_graph(nodes, "functions", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    return bytes(model.SerializeToString())


def points(dtype: type, seed: int) -> Array:
    """Numbers of every exponent and both signs, those where functions bend, and special ones."""
    random = np.random.default_rng(seed)
    info, bits = np.finfo(dtype), np.dtype(f"u{np.dtype(dtype).itemsize}").type
    exponents = np.repeat(np.arange((1 << info.nexp) - 1), 4096 // (1 << info.nexp) or 1)
    mantissas = random.integers(0, 1 << info.nmant, exponents.size)
    wide = ((exponents << info.nmant) | mantissas).astype(bits).view(dtype)
    most = np.log(info.max)
    ranges = [(-1, 1), (-6, 6), (-40, 12), (-1.1 * most, 1.01 * most)]
    bent = [random.uniform(low, high, 700).astype(dtype) for low, high in ranges]
    special = [0.0, 1.0, 0.5, 2.0, 3.0, np.inf, info.max, info.tiny, info.smallest_subnormal]
    numbers = np.concatenate([wide, -wide, *bent, special, np.negative(special), [np.nan]])
    return numbers.astype(dtype)


def exponents(x: Array, seed: int) -> Array:
    """An exponent for each base, whose power is mostly a number; a quarter of them whole."""
    random = np.random.default_rng(seed)
    most = float(np.log(np.finfo(x.dtype).max))
    with np.errstate(all="ignore"):
        fitting = random.uniform(-1.1 * most, 1.1 * most, x.size) / np.log(np.abs(x))
    whole = np.rint(random.uniform(-40, 40, x.size))
    chosen = np.where(random.random(x.size) < 0.25, whole, fitting)
    chosen[-40:] = random.choice([0.0, 1.0, -1.0, 3.0, -3.0, 0.5, np.inf, -np.inf, np.nan], 40)
    return chosen.astype(x.dtype)


def units(actual: Array, exact: Array) -> Array:
    """Return errors in units in the last place; infinite where NaNs or infinities differ."""
    rounded = exact.astype(actual.dtype)
    info = np.finfo(actual.dtype)
    place = np.spacing(np.clip(np.abs(rounded), info.tiny, info.max)).astype(Wide)
    error = np.abs(actual.astype(Wide) - exact) / place
    same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
    error = np.where(np.isnan(error) | (np.isinf(rounded) != np.isinf(actual)), np.inf, error)
    return np.where(same, 0, error).astype(np.float64)


def checked(
    dtype: type, target: str, cases: Sequence[Case], slack: float = 1.0
) -> list[tuple[Case, Array]]:
    """Hold compiled functions to their bounds, and return each with its exact results."""
    if dtype is np.float64 and np.finfo(Wide).nmant < 60:
        pytest.skip("this machine has no wider type to compare f64 with")
    x = points(dtype, 3)
    e = exponents(x, 5)
    artifact = farrier.compile(model(dtype, cases), target=target, verify=False, threads=1)
    results = artifact.run({"x": x, "e": e})
    wrong, exact_results = [], []
    cases = [*cases, Case("Pow", lambda x: np.power(x, e.astype(Wide)))]
    cases += [Case(f"Pow {c}", lambda x, c=c: np.power(x, Wide(c))) for c in POWERS]
    for case, actual in zip(cases, results.values(), strict=True):
        exact = case.exact(x.astype(Wide))
        error = units(actual, exact)
        worst = int(np.argmax(error))
        if error[worst] > slack * case.bound:
            wrong.append(f"{case.op}({x[worst]!r}) = {actual[worst]!r}: {error[worst]:.3g} ulp")
        exact_results.append((case, exact))
    assert not wrong, "\n".join(wrong)
    return exact_results


@np.errstate(all="ignore")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_within_4_units_in_the_last_place(dtype):
    imported = import_model(model(dtype, cases_of(dtype)))
    x = points(dtype, 3)
    operands = (x, exponents(x, 5))
    values = dict(zip([v.name for v in imported.graph.inputs], operands, strict=True))
    references = run_graph(imported.graph, values).values()
    of_cases = checked(dtype, "host", cases_of(dtype))
    for (case, exact), reference in zip(of_cases, references, strict=True):
        if dtype is np.float64:
            assert_reference(case.op, reference, exact)


@np.errstate(all="ignore")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code for x86-64")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_as_accurate_without_fused_multiply_add(dtype):
    """Functions whose argument is a sum of two numbers; polynomials round twice as often."""
    summed = ("Erf", "Gelu", "Swish", "FastGelu", "QuickGelu")
    checked(dtype, "x86-64-v2", [case for case in cases_of(dtype) if case.op in summed], 1.25)


def assert_reference(op: str, reference: Array, exact: Array) -> None:
    """Verification runs the references in f64 against kernels of f32: 12 digits are enough, of
    small results as well. HardSigmoid rounds twice where it begins."""
    normal = ~(np.abs(exact) < 1e-300)
    atol = 1e-15 if op == "HardSigmoid" else 0.0
    wanted = exact[normal].astype(np.float64)
    np.testing.assert_allclose(reference[normal], wanted, 1e-12, atol, err_msg=op)


NORMALIZATIONS = {
    "LayerNormalization": ((1, 2), {"axis": 1}),
    "InstanceNormalization": ((2,), {}),
    "GroupNormalization": ((2,), {"num_groups": 48}),
    "MeanVarianceNormalization": ((0, 2), {"axes": [0, 2]}),
}


@pytest.mark.parametrize("middle", [0.0, 1e4, -3e5])
def test_normalizations_keep_the_digits_of_deviations(middle, rng):
    """The mean in f32 is off by its last digit, here up to 1/64 of a deviation."""
    x = (rng.standard_normal((4, 48, 20)) + middle).astype(np.float32)
    x[1, 3] = middle + 0.3  # Equal elements have no deviation.
    constants = [
        numpy_helper.from_array(np.full(shape, value, np.float32), f"{name}{len(shape)}")
        for shape in ((48,), (48, 20))
        for name, value in (("scale", 1), ("bias", 0))
    ]
    nodes = []
    for op, (_, attrs) in NORMALIZATIONS.items():
        rank = 2 if op.startswith("Layer") else 1
        params = [] if op.startswith("Mean") else [f"scale{rank}", f"bias{rank}"]
        nodes.append(helper.make_node(op, ["x", *params], [op], **attrs))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    outputs = [onnx.ValueInfoProto(name=op) for op in NORMALIZATIONS]
    graph = helper.make_graph(nodes, "normalizations", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    outputs = farrier.compile(model, verify=False, threads=1).run({"x": x})
    wide = x.astype(np.float64)
    for op, (axes, _) in NORMALIZATIONS.items():
        deviation = wide - wide.mean(axes, keepdims=True)
        variance = (deviation**2).mean(axes, keepdims=True)
        epsilon = 1e-9 if op.startswith("Mean") else 1e-5
        exact = deviation / np.sqrt(variance + epsilon)
        np.testing.assert_allclose(outputs[op], exact, 0, 4e-6, err_msg=op)
