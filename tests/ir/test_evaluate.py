"""The evaluator of tensor programs: what it computes, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir import evaluate as module
from farrier.ir import expr as e
from farrier.ir.evaluate import evaluate
from farrier.ir.expr import Axis, Binary, BinaryOp, Buffer, Load, Reduce, ReduceOp, Select, Var
from farrier.ir.special import convert, erf
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout

F32 = DType.F32


def window_sum(layout: Layout | None, guarded: bool) -> TensorProgram:
    """y[i] = x[i − 1] + x[i] + x[i + 1]."""
    x, y = Buffer("x", F32, (5,), layout), Buffer("y", F32, (5,))
    at = e.sub(e.add(Var("i"), Var("k")), 1)
    value: e.Expr = Load(x, (at,))
    if guarded:
        inside = e.both(Binary(BinaryOp.LE, e.index(0), at), e.less(at, 5))
        value = Select(inside, value, e.Const(0.0, F32))
    body = Reduce(ReduceOp.SUM, (Axis("k", 3),), value)
    return TensorProgram("window", (x,), (Stage(y, (Axis("i", 5),), body),), (y,))


X = np.array([1, 2, 4, 8, 16], np.float32)
SUMS = np.array([3, 7, 14, 28, 24], np.float32)


def test_guarded_loads():
    np.testing.assert_array_equal(evaluate(window_sum(None, True), {"x": X})["y"], SUMS)


def test_a_halo_reads_as_zero():
    halo = dataclasses.replace(Layout.plain(1), halo=((1, 1),))
    np.testing.assert_array_equal(evaluate(window_sum(halo, False), {"x": X})["y"], SUMS)


def test_a_halo_that_is_too_small():
    halo = dataclasses.replace(Layout.plain(1), halo=((1, 0),))
    with pytest.raises(CompilerError, match=r"reads x at .* axis 0 of 5 with halo 1, 0"):
        evaluate(window_sum(halo, False), {"x": X})


def test_an_unguarded_load_out_of_bounds():
    with pytest.raises(CompilerError, match="stage y reads x"):
        evaluate(window_sum(None, False), {"x": X})


def test_operands_of_two_dtypes():
    y = Buffer("y", F32, (2,))
    mixed = Binary(BinaryOp.ADD, e.Const(1.0, F32), Var("i"))
    program = TensorProgram("mixed", (), (Stage(y, (Axis("i", 2),), mixed),), (y,))
    with pytest.raises(CompilerError, match="add of float32 and int64"):
        evaluate(program, {})


def test_inputs_of_another_type():
    with pytest.raises(CompilerError, match="input x is f32\\[5\\], given float64\\[5\\]"):
        evaluate(window_sum(None, True), {"x": X.astype(np.float64)})


@pytest.mark.parametrize("op", list(ReduceOp))
def test_slabs_do_not_change_the_result(monkeypatch, op):
    x, y = Buffer("x", F32, (3, 5, 7)), Buffer("y", F32, (3,))
    body = Reduce(op, (Axis("j", 5), Axis("k", 7)), Load(x, (Var("i"), Var("j"), Var("k"))))
    program = TensorProgram("reduce", (x,), (Stage(y, (Axis("i", 3),), body),), (y,))
    data = np.random.default_rng(0).uniform(0.5, 1.5, (3, 5, 7)).astype(np.float32)
    whole = evaluate(program, {"x": data})["y"]
    monkeypatch.setattr(module, "_SLAB", 4)
    np.testing.assert_allclose(evaluate(program, {"x": data})["y"], whole, rtol=1e-6)
    numpy = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[op.value]
    np.testing.assert_allclose(whole, numpy(data, axis=(1, 2)), rtol=1e-6)


def test_erf_is_exact():
    import math

    points = np.concatenate([np.linspace(-7, 7, 1001), [0.0, -0.0, 1e-300, np.inf, -np.inf]])
    exact = np.array([math.erf(p) for p in points])
    np.testing.assert_allclose(erf(points), exact, rtol=1e-13, atol=0)
    assert np.isnan(erf(np.array([np.nan], np.float32)))[0]


def test_conversion_saturates():
    x = np.array([300.0, -5.0, np.nan, np.inf, 2.9])
    assert convert(x, DType.U8).tolist() == [255, 0, 0, 255, 2]
    assert convert(x, DType.I64).tolist() == [300, -5, 0, 2**63 - 1, 2]
    assert convert(np.array([1e9]), DType.F16).tolist() == [np.inf]
