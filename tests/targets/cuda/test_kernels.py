"""Kernels as PTX: in the emulator their results are those of the interpreters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Axis, Binary, BinaryOp, Buffer, Cast, Load, Unary, UnaryOp, Var
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType
from farrier.lower.lower_threads import lower_threads
from farrier.targets.cuda.kernel_text import render
from farrier.targets.cuda.ptx import ptx_of
from farrier.targets.gpu import points
from tests.ir.kernels import KERNELS, inputs_of
from tests.targets.cuda.running import run_ptx

F32, F64, I32, U32, I64 = DType.F32, DType.F64, DType.I32, DType.U32, DType.I64
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 2.5, -2.5, 3.7, 1e-6, 7.0, -7.0, 20.0, -20.0]
FLOATS = np.array([*NUMBERS, 80.0, -80.0, 1e10, -1e10, math.inf, -math.inf, math.nan])
INTEGERS = np.array([0, 1, -1, 2, 3, -3, 7, 31, 32, 33, 100, -100, 2**31 - 1, -(2**31)])


def _run(function, inputs, cpu="sm_80"):
    return run_ptx(ptx_of(render(function, cpu), cpu), function, inputs)


def _assert_right(expr, dtype, sources, tolerance=0.0, cpu="sm_80"):
    size = len(sources[0])
    inputs = dict(zip("xy", sources, strict=False))
    buffers = [Buffer(name, DType.from_numpy(a.dtype), (size,)) for name, a in inputs.items()]
    output = Buffer("z", dtype, (size,))
    body = expr(*(Load(buffer, (Var("i"),)) for buffer in buffers))
    program = TensorProgram(
        "f", tuple(buffers), (Stage(output, (Axis("i", size),), body),), (output,)
    )
    space = points.space(program)
    kernel = lower_threads(space.schedule(space.default()).function)
    expected = evaluate(program, inputs)["z"]
    np.testing.assert_allclose(_run(kernel, inputs, cpu)["z"], expected, tolerance, tolerance / 100)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("op", sorted(set(UnaryOp) - {UnaryOp.NOT}))
def test_functions_of_floats(op, dtype):
    x = FLOATS[FLOATS <= 0] if op is UnaryOp.EXP_NONPOSITIVE else FLOATS
    x = x.astype(dtype.numpy)
    _assert_right(lambda a: Unary(op, a), dtype, [x], 1e-6 if dtype is F32 else 1e-13, "sm_75")


def _pairs(values, dtype):
    x, y = np.meshgrid(values, values, indexing="ij")
    return [each.reshape(-1).astype(dtype.numpy) for each in (x, y)]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "min", "max", "pow", "swish"])
def test_arithmetic_of_floats(op):
    pairs = _pairs(FLOATS[np.abs(FLOATS) < 50], F32)
    if op == "div":
        pairs = [each[pairs[1] != 0] for each in pairs]
    _assert_right(lambda a, b: Binary(BinaryOp(op), a, b), F32, pairs, 1e-5)


@pytest.mark.parametrize("dtype", [I32, U32, I64])
@pytest.mark.parametrize(
    "op",
    [
        *("add", "sub", "mul", "min", "max", "div", "mod", "shl", "shr"),
        *("bit_and", "bit_or", "bit_xor"),
    ],
)
def test_arithmetic_of_integers(op, dtype):
    x, y = _pairs(INTEGERS, dtype)
    if op in ("div", "mod"):
        keep = (y != 0) & (y != INTEGERS.astype(dtype.numpy)[2])
        x, y = x[keep], y[keep]
    _assert_right(lambda a, b: Binary(BinaryOp(op), a, b), dtype, [x, y])


@pytest.mark.parametrize("source", [F32, F64, I32, U32, I64])
@pytest.mark.parametrize("target", [F32, F64, I32, U32, I64, DType.I8, DType.U8])
def test_conversions_saturate(source, target):
    values = FLOATS if source.is_float else INTEGERS
    _assert_right(lambda a: Cast(target, a), target, [values.astype(source.numpy)], 1e-7)


_NARROW = [DType.F16, DType.BF16, DType.F8E4M3FN, DType.F8E5M2, DType.I16, DType.BOOL]


@pytest.mark.parametrize("cpu", ["sm_75", "sm_80"])
@pytest.mark.parametrize("dtype", _NARROW)
def test_narrow_types_are_stored_as_the_grammar_says(dtype, cpu):
    values = FLOATS[np.isfinite(FLOATS)].astype(np.float32)
    _assert_right(lambda a: Cast(dtype, a), dtype, [values], 1e-7, cpu)
    held = values[np.abs(values) < 100].astype(dtype.numpy)
    _assert_right(lambda a: Cast(F32, Binary(BinaryOp.ADD, a, a)), F32, [held], 1e-7, cpu)


def test_a_float_is_rounded_to_a_byte_at_once():
    values = np.array([0.5, 1.5, -2.5, 126.6, 300.0, -300.0, math.nan], np.float32)
    _assert_right(lambda a: Cast(DType.I8, Unary(UnaryOp.ROUND, a)), DType.I8, [values])


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_phases(name):
    function, meaning = KERNELS[name]
    inputs = inputs_of(function)
    result = _run(lower_threads(function), inputs)[function.params[-1].name]
    np.testing.assert_allclose(result, meaning(*inputs.values()), 1e-5, 1e-5)
