"""Kernels as WGSL: their results are those of the interpreters, on a real driver."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.lower.write_whole_words import write_whole_words
from farrier.lower.write_whole_words_but_f16 import write_whole_words_but_f16
from farrier.targets.gpu import points
from farrier.targets.gpu.device import LEAST
from farrier.targets.webgpu.wgsl import render
from tests.ir.kernels import KERNELS, function_of, inputs_of
from tests.schedule import programs
from tests.targets.webgpu import webgpu

F32, I32, U32, BOOL = DType.F32, DType.I32, DType.U32, DType.BOOL
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, 1e-6, -1e-6, 1e-3]
LARGE = [7.0, -7.0, 20.0, -20.0, 80.0, -80.0, 100.0, -100.0, 1e10, -1e10, 3e38]
LIMITS = [2147483520.0, 2147483648.0, -2147483648.0, 4294967296.0, math.inf, -math.inf, math.nan]
FLOATS = np.array([*NUMBERS, *LARGE, *LIMITS], np.float32)
INTEGERS = np.array([0, 1, -1, 2, 3, -3, 7, 31, 32, 33, 100, -100, 2**31 - 1, -(2**31)], np.int32)
TYPES = {F32: FLOATS, I32: INTEGERS, U32: INTEGERS.view(np.uint32)}


def _kernel(program, packed=LEAST.packed):
    space = points.space(program, packed)
    return write_whole_words(lower_threads(space.schedule(space.default()).function))


def _elementwise(expr, dtype, sources):
    """A program that stores the expression of x, and y if there are two sources."""
    (size,) = {len(array) for array in sources}
    inputs = [
        Buffer(name, DType.from_numpy(array.dtype), (size,))
        for name, array in zip("xy", sources, strict=False)
    ]
    output = Buffer("z", dtype, (size,))
    body = expr(*(Load(buffer, (Var("i"),)) for buffer in inputs))
    stage = Stage(output, (Axis("i", size),), body)
    return TensorProgram("elementwise", tuple(inputs), (stage,), (output,))


def _assert_right(program, inputs, tolerance=0.0):
    expected = evaluate(program, inputs)
    result = webgpu.run(_kernel(program), inputs)
    for name, array in expected.items():
        if array.dtype == np.float32:
            large = np.isfinite(array) & (np.abs(array) > 3e38)  # rounding may overflow
            np.testing.assert_allclose(
                np.where(large, 0, result[name]),
                np.where(large, 0, array),
                tolerance,
                1e-6 * tolerance,
            )
        else:
            np.testing.assert_array_equal(result[name], array)


# Operators whose results round: WGSL bounds the error of exp by 3 + 2 |x| units, and so on.
EXACT = (
    *(UnaryOp.NEG, UnaryOp.ABS, UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND),
    UnaryOp.ROUND_TF32,
)
WHERE = {  # The operands that a function is defined for, or that WGSL is exact enough at.
    UnaryOp.EXP_NONPOSITIVE: lambda x: x <= 0,
    UnaryOp.LOG: lambda x: x > 0,
    UnaryOp.LOG1P: lambda x: x > -1,
    UnaryOp.SQRT: lambda x: x >= 0,
    UnaryOp.SIN: lambda x: np.abs(x) < 8,
    UnaryOp.COS: lambda x: np.abs(x) < 8,
    UnaryOp.TAN: lambda x: np.abs(x) < 8,
    UnaryOp.ASIN: lambda x: np.abs(x) <= 1,
    UnaryOp.ACOS: lambda x: np.abs(x) <= 1,
    UnaryOp.ACOSH: lambda x: (x >= 1) & (x < 1e9),
    UnaryOp.ATANH: lambda x: np.abs(x) < 1,
    UnaryOp.ASINH: lambda x: np.abs(x) < 1e9,
    UnaryOp.SINH: lambda x: np.abs(x) < 80,
    UnaryOp.COSH: lambda x: np.abs(x) < 80,
}


@pytest.mark.parametrize("op", [op for op in UnaryOp if op is not UnaryOp.NOT])
def test_functions_of_floats(op):
    x = FLOATS[np.isfinite(FLOATS) & (np.abs(FLOATS) < 1e9)]
    x = x[WHERE.get(op, lambda x: np.full(len(x), True))(x)]
    program = _elementwise(lambda a: Unary(op, a), F32, [x])
    _assert_right(program, {"x": x}, 1e-7 if op in EXACT else 2e-5)


@pytest.mark.parametrize("op", [UnaryOp.NEG, UnaryOp.ABS])
def test_functions_of_integers(op):
    _assert_right(_elementwise(lambda a: Unary(op, a), I32, [INTEGERS]), {"x": INTEGERS})


def _pairs(values):
    x, y = np.meshgrid(values, values, indexing="ij")
    return x.reshape(-1).copy(), y.reshape(-1).copy()


ARITHMETIC = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX]
COMPARISONS = [BinaryOp.LT, BinaryOp.LE, BinaryOp.EQ, BinaryOp.NE]
BITS = [
    *(BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR, BinaryOp.SHL, BinaryOp.SHR),
    BinaryOp.MUL_HIGH,
]


@pytest.mark.parametrize("op", [BinaryOp.MIN, BinaryOp.MAX])
def test_the_least_and_the_greatest_keep_nan(op):
    x, y = _pairs(FLOATS)
    _assert_right(_elementwise(lambda a, b: Binary(op, a, b), F32, [x, y]), {"x": x, "y": y})


@pytest.mark.parametrize("op", [*ARITHMETIC[:3], BinaryOp.DIV, BinaryOp.MOD, BinaryOp.POW])
def test_arithmetic_of_floats(op):
    x, y = _pairs(FLOATS[np.isfinite(FLOATS) & (np.abs(FLOATS) < 50)])
    keep = (y != 0) | (op not in (BinaryOp.DIV, BinaryOp.MOD))
    if op is BinaryOp.MOD:  # The quotient is exact for such operands.
        keep &= (x * 2 % 1 == 0) & (y * 2 % 1 == 0)
    with np.errstate(all="ignore"):
        if op is BinaryOp.POW:
            keep &= np.abs(np.power(np.abs(x), y)) < 1e30
            keep &= np.abs(np.power(np.abs(x), y)) > 1e-30
    x, y = x[keep].copy(), y[keep].copy()
    tolerance = 1e-4 if op in (BinaryOp.POW, BinaryOp.MOD) else 1e-6
    program = _elementwise(lambda a, b: Binary(op, a, b), F32, [x, y])
    _assert_right(program, {"x": x, "y": y}, tolerance)


@pytest.mark.parametrize("dtype", [I32, U32])
@pytest.mark.parametrize("op", [*ARITHMETIC, *BITS, BinaryOp.DIV, BinaryOp.MOD])
def test_arithmetic_of_integers(op, dtype):
    x, y = _pairs(TYPES[dtype])
    if op in (BinaryOp.DIV, BinaryOp.MOD):
        keep = (y != 0) & ~((x == TYPES[I32][-1]) & (y == TYPES[I32][2]))
        x, y = x[keep].copy(), y[keep].copy()
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        x, y = (a[(y.view(np.int32) >= 0) & (y.view(np.int32) < 32)].copy() for a in (x, y))
    program = _elementwise(lambda a, b: Binary(op, a, b), dtype, [x, y])
    _assert_right(program, {"x": x, "y": y})


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_choose(op, dtype):
    x, y = _pairs(TYPES[dtype])

    def chosen(a, b):
        return Select(Binary(op, a, b), Const(1, I32), Const(0, I32))

    _assert_right(_elementwise(chosen, I32, [x, y]), {"x": x, "y": y})


def test_nan_is_not_itself():
    def chosen(a):
        return Select(Binary(BinaryOp.NE, a, a), Const(1, I32), Const(0, I32))

    _assert_right(_elementwise(chosen, I32, [FLOATS]), {"x": FLOATS})


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("target", TYPES)
def test_conversions_saturate(source, target):
    x = TYPES[source]
    program = _elementwise(lambda a: Cast(target, a), target, [x])
    _assert_right(program, {"x": x}, 1e-7)


NARROW = [DType.I8, DType.U8, DType.I16, DType.U16, BOOL, DType.F16, DType.BF16]
HALVES = np.array([65504, 65519.9, 65520, 2**-24, 2**-25, 3 * 2**-25, 6e-8, 2049, 2051], np.float32)


@pytest.mark.parametrize("target", NARROW)
def test_conversions_to_types_that_share_words(target):
    """From 32 bits to a narrow type and back, by each of the ways to write words."""
    for source, values in TYPES.items():
        x = np.concatenate([values, HALVES]) if source is F32 else values
        program = _elementwise(lambda a: Cast(target, a), target, [x])
        (expected,) = evaluate(program, {"x": x}).values()
        for packed in (LEAST.packed, frozenset()):
            (result,) = webgpu.run(_kernel(program, packed), {"x": x}).values()
            np.testing.assert_array_equal(result.astype(float), expected.astype(float))
        back = _elementwise(lambda a, source=source: Cast(source, a), source, [expected])
        _assert_right(back, {"x": expected})


def test_elements_of_f16_are_written_alone_where_the_device_has_the_type():
    x = FLOATS[np.abs(FLOATS) < 65504]
    program = _elementwise(lambda a: Cast(DType.F16, a), DType.F16, [x])
    space = points.space(program)
    kernel = lower_threads(space.schedule(space.default()).function)
    assert write_whole_words_but_f16(kernel) is kernel
    text = render(kernel, has_f16=True)
    assert "enable f16;" in text
    assert "var<storage, read_write> m_z: array<f16>;" in text
    (result,) = webgpu.run(kernel, {"x": x}, has_f16=True).values()
    # WGSL lets a conversion choose either neighbour.
    np.testing.assert_array_max_ulp(result, x.astype(np.float16), 1)


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I16, DType.U16])
@pytest.mark.parametrize("op", [*ARITHMETIC, *BITS[:3], BinaryOp.DIV, BinaryOp.MOD])
def test_arithmetic_of_narrow_integers(op, dtype):
    low, high = dtype.limits
    values = np.array([0, 1, 2, 3, 7, high, high // 2 + 1, low, low + 1], dtype.numpy)
    x, y = _pairs(values)
    if op in (BinaryOp.DIV, BinaryOp.MOD):
        keep = (y != 0) & ~((x == low) & (y == dtype.numpy.type(-1 if low else high)))
        x, y = x[keep].copy(), y[keep].copy()
    program = _elementwise(lambda a, b: Binary(op, a, b), dtype, [x, y])
    _assert_right(program, {"x": x, "y": y})


I64 = DType.I64
WORDS = [0, 1, 2, 3, 31, 33, 1 << 31, (1 << 32) - 1, 1 << 32, 5 << 33, 12345678901, 1 << 62]
LONG = np.array([*WORDS, *(-word for word in WORDS), 2**63 - 1, -(2**63)], np.int64)


@pytest.mark.parametrize("op", [*ARITHMETIC, *BITS[:5], BinaryOp.DIV, BinaryOp.MOD])
def test_arithmetic_of_64_bits(op):
    x, y = _pairs(LONG)
    if op in (BinaryOp.DIV, BinaryOp.MOD):
        keep = (y != 0) & ~((x == LONG[-1]) & (y == -1))
        x, y = x[keep].copy(), y[keep].copy()
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        x, y = (a[(y >= 0) & (y < 64)].copy() for a in (x, y))
    program = _elementwise(lambda a, b: Binary(op, a, b), I64, [x, y])
    _assert_right(program, {"x": x, "y": y})


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_of_64_bits(op):
    x, y = _pairs(LONG)
    program = _elementwise(lambda a, b: Binary(op, a, b), BOOL, [x, y])
    _assert_right(program, {"x": x, "y": y})


@pytest.mark.parametrize("dtype", [F32, I32, U32, BOOL, DType.I8, DType.U16])
def test_conversions_of_64_bits(dtype):
    rng = np.random.default_rng(0)
    any_size = rng.integers(-(2**63), 2**63, 200) >> rng.integers(0, 63, 200)
    halves = [(1 << 24) + np.arange(9), (1 << 40) + (1 << 16) * np.arange(9)]
    there = np.concatenate([LONG, any_size, *halves])
    _assert_right(_elementwise(lambda a: Cast(dtype, a), dtype, [there]), {"x": there})
    x = there.astype(dtype.numpy)
    if dtype is F32:
        powers = np.float32(2) ** np.arange(20, 70).astype(np.float32)
        x = np.concatenate([FLOATS, powers, -powers])
    _assert_right(_elementwise(lambda a: Cast(I64, a), I64, [x]), {"x": x})


@pytest.mark.parametrize("op", [BinaryOp.MIN, BinaryOp.MAX, BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT])
def test_operators_of_booleans(op):
    x, y = _pairs(np.array([False, True]))
    program = _elementwise(lambda a, b: Binary(op, a, b), BOOL, [x, y])
    _assert_right(program, {"x": x, "y": y})


def test_threads_that_write_parts_of_a_word_are_refused():
    function = function_of(
        "@function\ndef narrow(a: u8[8], b: u8[8]):\n    for i in block(2):\n"
        "        for j in thread(4):\n            b[i * 4 + j] = a[i * 4 + j]\n"
    )
    with pytest.raises(CompilerError, match="threads write parts of the same word of b"):
        render(function)
    a = np.arange(8, dtype=np.uint8)
    assert (webgpu.run(write_whole_words(function), {"a": a})["b"] == a).all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 0.1, -3.4028234663852886e38])
def test_constants(value):
    x = np.zeros(3, np.float32)
    program = _elementwise(lambda a: Binary(BinaryOp.ADD, a, Const(value, F32)), F32, [x])
    result = webgpu.run(_kernel(program), {"x": x})["z"]
    np.testing.assert_array_equal(result, np.full(3, value, np.float32))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_phases(name):
    function, meaning = KERNELS[name]
    inputs = inputs_of(function)
    result = webgpu.run(lower_threads(function), inputs)[function.params[-1].name]
    np.testing.assert_allclose(result, meaning(*inputs.values()), 1e-5, 1e-5)


@pytest.mark.parametrize(
    "program",
    [programs.matmul(6, 10, 5), programs.matmul(37, 29, 23), programs.softmax(4, 9)],
    ids=lambda program: f"{program.name}{program.outputs[0].shape}",
)
def test_a_thread_for_each_point(program):
    rng = np.random.default_rng(0)
    inputs = {
        buffer.name: rng.standard_normal(buffer.type.static_shape).astype(np.float32)
        for buffer in program.inputs
    }
    _assert_right(program, inputs, 1e-4)


def test_more_blocks_than_a_row_of_the_grid_has():
    function = function_of(
        "@function\ndef many(a: i32[70000], b: i32[70000]):\n    for i in block(70000):\n"
        "        for j in thread(1):\n            b[i] = a[i] + 1\n".replace("+ 1", "+ a[0]")
    )
    a = np.arange(1, 70001, dtype=np.int32)
    assert (webgpu.run(function, {"a": a})["b"] == a + 1).all()


def test_elements_of_64_bits_are_copied_and_counted():
    function = function_of(
        "@function\ndef wide(a: i64[8], b: i64[8], c: i64[8]):\n    for i in block(8):\n"
        "        for j in thread(1):\n            b[i] = a[7 - i]\n"
        "            c[i] = i - 3\n"
    )
    a = np.arange(8) << 40
    outputs = webgpu.run(function, {"a": a})
    assert (outputs["b"] == a[::-1]).all()
    assert (outputs["c"] == np.arange(8) - 3).all()


def test_what_wgsl_cannot_store_is_an_error_that_names_it():
    function = function_of(
        "@function\ndef wide(a: f64[8], b: f64[8]):\n    for i in block(8):\n"
        "        for j in thread(1):\n            b[i] = a[i]\n"
    )
    with pytest.raises(CompilerError, match="a is f64, which kernels of WebGPU cannot read"):
        render(function)


def test_a_kernel_of_too_many_arrays_is_refused():
    names = [f"a{number}" for number in range(9)]
    params = ", ".join(f"{name}: f32[8]" for name in names)
    function = function_of(
        f"@function\ndef many({params}):\n    for i in block(8):\n        for j in thread(1):\n"
        f"            a0[i] = {' + '.join(f'{name}[i]' for name in names[1:])}\n"
    )
    with pytest.raises(CompilerError, match="it has 9 arrays, and a kernel of WebGPU at"):
        render(function)
