"""Primitive tensorize: a nest replaced by a declared intrinsic."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from farrier.ir import expr as e
from farrier.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Function, Store
from farrier.ir.types import DType, Layout, PhysicalDim
from farrier.schedule.nest import nested
from tests.schedule.checks import assert_keeps_results, assert_refused, body, scheduled, text
from tests.schedule.programs import matmul

NAME = "avx2_broadcast_fma"
PRODUCT = """
@function
def multiply(x: f32[3], w: f32[3, 24], t: f32[24]):
    for v in serial(3):
        for k in serial(3):
            for l in serial(8):
                t[8 * v + l] = {0}
"""
FITTING = PRODUCT.format("t[8 * v + l] + x[k] * w[k, 8 * v + l]")


def test_the_tiles_are_where_the_nest_begins():
    assert body(scheduled(FITTING, f'tensorize("l", "{NAME}")')) == text(f"""
        for v in serial(3):
            for k in serial(3):
                intrinsic('{NAME}', tile(t[v * 8], 0), x[k], tile(w[k, v * 8], 1))
    """)


def test_a_loop_of_one_iteration_runs_along_any_axis():
    source = """
@function
def clear(t: i32[3, 4]):
    for v in serial(3):
        for m in serial(1):
            for n in serial(4):
                t[v, n] = i32(0)
"""
    assert body(scheduled(source, 'tensorize("m", "mve_zero_i32_1")')) == text("""
        for v in serial(3):
            intrinsic('mve_zero_i32_1', tile(t[v, 0], 0, 1))
    """)


def test_lanes_that_are_vectorized_are_the_same():
    steps = ('vectorize("l")', f'tensorize("l", "{NAME}")')
    assert scheduled(FITTING, *steps) == scheduled(FITTING, steps[1])


@pytest.mark.parametrize(
    ("source", "step", "reason"),
    [
        (FITTING, 'tensorize("l", "magic")', "no intrinsic magic is declared"),
        (FITTING, f'tensorize("q", "{NAME}")', "there is no loop q; the loops are v, k, l"),
        (FITTING, f'tensorize("k", "{NAME}")', f"{NAME} runs over 8, k is serial over 3"),
        (
            PRODUCT.format("t[8 * v + l] - x[k] * w[k, 8 * v + l]"),
            f'tensorize("l", "{NAME}")',
            f"{NAME} computes something else than the nest",
        ),
        (
            PRODUCT.format("t[8 * v + l] + x[k] * w[k, 8 * v + 7 - l]"),
            f'tensorize("l", "{NAME}")',
            f"{NAME} takes neighbours",
        ),
        (
            PRODUCT.format("t[l] + x[k] * w[k, 8 * v + l]"),
            f'tensorize("l", "{NAME}")',
            f"{NAME} uses one tile c where the nest has several",
        ),
        (
            FITTING.replace("w: f32[3, 24]", "w: f32[3, 24] @ layout(1, 0)"),
            f'tensorize("l", "{NAME}")',
            f"{NAME} takes neighbours in memory for b",
        ),
        (
            FITTING.replace("x: f32[3]", "x: f16[3]").replace("x[k]", "cast(f32, x[k])"),
            f'tensorize("l", "{NAME}")',
            f"{NAME} computes something else than the nest",
        ),
        (
            PRODUCT.format("t[8 * v + l] + x[k] * w[k, 8 * v + l]").replace(
                "    t[8", "    if l < 4:\n                    t[8"
            ),
            f'tensorize("l", "{NAME}")',
            f"{NAME} has a Store where the nest has a If",
        ),
    ],
    ids=["name", "loop", "extent", "minus", "backwards", "elsewhere", "apart", "dtype", "guard"],
)
def test_it_refuses(source, step, reason):
    assert_refused(source, step, reason)


def test_it_refuses_a_tile_where_the_declared_one_is_a_scalar():
    reason = f"{NAME} runs along axes of c that the nest does not"
    assert_refused(matmul(3, 5, 8), f'tensorize("y_k", "{NAME}")', reason)


@st.composite
def _products(draw: st.DrawFn) -> Function:
    """Sums of products over eight lanes, somewhere in buffers of one or two axes, in any order of
    the other loops; in some the lanes do not lie as the intrinsic wants them."""
    loops = [(name, draw(st.integers(1, 3))) for name in ("v", "k")]
    step = draw(st.sampled_from([1, 1, 1, 1, 2]))

    def along(var: str | None) -> Expr:
        lanes = e.mul(Var("l"), step)
        return lanes if var is None else e.add(e.mul(Var(var), 8 * step), lanes)

    wide = 8 * step * 3
    order = draw(st.sampled_from([(0, 1), (0, 1), (0, 1), (1, 0)]))
    layout = Layout(tuple(PhysicalDim(axis) for axis in order))
    t = Buffer("t", DType.F32, (3, wide))
    x = Buffer("x", DType.F32, (3, 3))
    w = Buffer("w", DType.F32, (3, wide), layout, MemoryScope.CONSTANT)
    at = (draw(st.sampled_from([Var("v"), e.index(1)])), along(draw(st.sampled_from(["v", None]))))
    b = Load(w, (Var("k"), along(draw(st.sampled_from(["v", "k", None])))))
    product = Binary(BinaryOp.MUL, Load(x, (Var("v"), Var("k"))), b)
    total = Load(t, draw(st.sampled_from([at, at, at, (at[0], Var("l"))])))
    store = Store(t, at, Binary(BinaryOp.ADD, total, product))
    outer = draw(st.permutations(loops))
    return Function("products", (x, w, t), nested([*outer, ("l", 8)], store))


def test_it_keeps_results():
    assert_keeps_results("tensorize", lambda dice: ("l", NAME), _products())
