"""The operators on integers, by the hashes of what LiteRT's reference kernels return."""

import numpy as np
import pytest

import farrier
from farrier.frontends.builder import Declared, Source
from farrier.frontends.tflite.reading import read_model
from farrier.ir.types import DType
from farrier.ops import lookup
from farrier.ops.fixed_point import IS_SMALL, LARGEST_SUM, ONCE, SHIFTS, TWICE
from tests.frontends.fuzz import fuzz
from tests.frontends.tflite.compare import calls_of
from tests.frontends.tflite.hashes import hashed, read_hashes
from tests.frontends.tflite.operators import MODELS


@pytest.mark.parametrize("name", ["integers", "integer_sums", "unsigned_sums"])
def test_integers_are_those_of_the_reference_kernels(name):
    data = MODELS[name]().model()
    session = farrier.compile(data, verify=False).session()
    results = [session.run(inputs) for inputs in calls_of(read_model(data))]
    expected = read_hashes()[name]
    outputs = {output: [result[output] for result in results] for output in expected}
    assert {output: hashed(arrays) for output, arrays in outputs.items()} == expected


def test_damaged_files_end_in_errors_that_say_so():
    assert fuzz([write().model() for write in MODELS.values()], 150, seed=1)


def _reference(x, multiplier, right, left, rounding):
    """Return a product by Python's integers, in the words of the specification."""
    product = (x << left) * multiplier
    if rounding == ONCE:
        return (product + (1 << 30 + right)) >> 31 + right
    high = (product + (1 << 30)) >> 31
    half = (1 << right) >> 1
    return (abs(high) + half >> right) * (1 if high >= 0 else -1)


@pytest.mark.parametrize("rounding", [ONCE, TWICE])
def test_requantize_compiled_and_in_numpy(rounding):
    rng = np.random.default_rng(4)
    edges = [0, 1, -1, 2**31 - 1, -(2**31), 2**30, -(2**30), 2**15, -(2**15) - 1]
    x = np.array([*edges, *rng.integers(-(2**31), 2**31, 300), *rng.integers(-9999, 9999, 300)])
    x = x.astype(np.int32)
    attrs = {"zero": 0, "low": -(2**31), "high": 2**31 - 1, "to": "i32", "rounding": rounding}
    multipliers = [2**30, 2**31 - 1, int(rng.integers(2**30, 2**31))]
    for right, multiplier in [(r, m) for r in (0, 1, 7, 20, 31) for m in multipliers]:
        expected = [_reference(int(v), multiplier, right, 0, rounding) for v in x]
        operands = [np.array(value, np.int32) for value in (multiplier, right)]
        (result,) = lookup("Requantize").reference([x, *operands], attrs)
        assert result.tolist() == expected
        compiled = _compiled(x, operands, attrs)
        assert compiled.tolist() == expected, (right, multiplier)


def test_requantize_of_small_sums_needs_no_more_than_32_bits():
    rng = np.random.default_rng(6)
    edges = [0, 1, -1, LARGEST_SUM, -LARGEST_SUM, 2**15, -(2**15) - 1]
    x = [*edges, *rng.integers(-LARGEST_SUM, LARGEST_SUM, 300), *rng.integers(-9999, 9999, 300)]
    x = np.array(x, np.int32)
    attrs = {"low": -(2**31), "high": 2**31 - 1, "to": "i32", "rounding": TWICE, IS_SMALL: 1}
    multipliers = [2**30, 2**31 - 1, int(rng.integers(2**30, 2**31))]
    for zero in (-128, 0, 255):
        for right, multiplier in [(r, m) for r in (1, 2, 7, SHIFTS[1]) for m in multipliers]:
            operands = [np.array(value, np.int32) for value in (multiplier, right)]
            expected = [_reference(int(v), multiplier, right, 0, TWICE) + zero for v in x]
            compiled = _compiled(x, operands, {**attrs, "zero": zero})
            assert compiled.tolist() == expected, (right, multiplier)


_SESSIONS = {}


def _compiled(x, operands, attrs):
    """Run one kernel for all factors of a rounding."""
    key = attrs["rounding"], attrs["zero"], IS_SMALL in attrs
    if key not in _SESSIONS:

        def build(b):
            names = [b.input(name) for name in ("x", "multiplier", "right")]
            (y,) = b.node("Requantize", names, attrs, origin="y")
            b.output("y", y)

        inputs = [Declared("x", DType.I32, x.shape)]
        inputs += [Declared(name, DType.I32, ()) for name in ("multiplier", "right")]
        _SESSIONS[key] = farrier.compile(Source(inputs, build), verify=False).session()
    arrays = dict(zip(("x", "multiplier", "right"), [x, *operands], strict=True))
    return _SESSIONS[key].run(arrays)["y"]


def test_the_other_operators_of_fixed_point():
    rng = np.random.default_rng(5)
    x = rng.integers(-(2**31), 2**31, 500).astype(np.int32)
    y = rng.integers(-(2**31), 2**31, 500).astype(np.int32)
    x[:2], y[:2] = -(2**31), [-(2**31), 7]
    places = rng.integers(0, 31, 500).astype(np.int32)
    expected = {
        "HighProduct": [
            min(int(a) * int(b) + 2**30 >> 31, 2**31 - 1) for a, b in zip(x, y, strict=True)
        ],
        "RoundedShift": [
            (abs(int(a)) + ((1 << int(p)) >> 1) >> int(p)) * (1 if a >= 0 else -1)
            for a, p in zip(x, places, strict=True)
        ],
        "LeadingZeros": [32 - (int(a) & 2**32 - 1).bit_length() for a in x],
    }

    def build(b):
        operands = {
            "HighProduct": ["x", "y"],
            "RoundedShift": ["x", "places"],
            "LeadingZeros": ["x"],
        }
        for op, names in operands.items():
            b.output(op, b.node(op, [b.input(name) for name in names], origin=op)[0])

    source = Source([Declared(name, DType.I32, (500,)) for name in ("x", "y", "places")], build)
    arrays = {"x": x, "y": y, "places": places}
    results = farrier.compile(source, verify=False).session().run(arrays)
    assert {op: result.tolist() for op, result in results.items()} == expected
