"""The tiles of tails of unknown length have about the number of rows that are left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.ir.evaluate import evaluate
from farrier.ir.loop import For, LoopKind, Store
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.verify_kernel import verify_function
from farrier.lower.narrow_tiles import shortened
from farrier.targets.cpu.rules import register_tile
from farrier.targets.x86 import X86Target
from tests.ir.bind import bind
from tests.lowering import final_loops, finalize
from tests.schedule.programs import inputs_of

# 32 registers of 16 lanes, whichever machine runs the tests.
TARGET = X86Target(
    "x86_64-unknown-linux-gnu", "x86-64-v4", (), 512, 32, 2, 32 << 10, 1 << 20, 1 << 24
)

MATMUL = """@program(m=dim(1, 40, 20))
def matmul(a: f32[m, 4], b: f32[4, 40] in constant, r: f32[m, 40]):
    matmul: f32[m, 40] in workspace
    for m_, n in axes(m, 40):
        matmul[m_, n] = sum(a[m_, k] * b[k, n] for k in axes(4))
    y: f32[m, 40]
    for i, j in axes(m, 40):
        y[i, j] = matmul[i, j] + r[i, j]
    return y
"""
CONV = """@program(h=dim(1, 12, 6), w=dim(2, 12, 6))
def conv(x: f32[1, 3, h, w], f: f32[16, 3, 2, 2] in constant):
    conv: f32[1, 16, h, w] @ layout(0, 1 / 16, 2, 3, 1 % 16)
    for n, oc, oy, ox in axes(1, 16, h, w):
        conv[n, oc, oy, ox] = sum((x[n, ic, oy + ky, ox + kx] if oy + ky < h and ox + kx < w
            else 0.0) * f[oc, ic, ky, kx] for ic, ky, kx in axes(3, 2, 2))
    return conv
"""
SELECT = """@function(m=dim(1, 40, 20))
def rows(a: f32[m, 3], y: f32[8*((m + 7) // 8)]):
    for o in serial((m + 7) // 8):
        with alloc(f32[8] in register) as t:
            for z in unrolled(8):
                t[z] = 0.0
            for k in serial(3):
                for i in unrolled(8):
                    if o * 8 + i < m:
                        t[i] = t[i] + a[o * 8 + i, k]
            for j in unrolled(8):
                y[o * 8 + j] = t[j] if o * 8 + j < m else 0.0
"""

BESIDE = """@function(m=dim(1, 40, 20))
def rows(a: f32[m, 3], z: f32[(m + 7) // 8, 16], y: f32[2, m]):
    for o in parallel((m + 7) // 8):
        for u in unrolled(16):
            z[o, u] = 1.0
        for v in serial(2):
            with alloc(f32[8] in register) as t:
                for i in unrolled(8):
                    if o * 8 + i < m:
                        t[i] = 0.0
                for k in serial(3):
                    for i2 in unrolled(8):
                        if o * 8 + i2 < m:
                            t[i2] = t[i2] + a[o * 8 + i2, k]
                for j in unrolled(8):
                    if o * 8 + j < m:
                        y[v, o * 8 + j] = t[j]
"""


def built(program, pick, **knobs):
    """A candidate of the register tile rule with these knobs, and its decisions."""
    space = register_tile.space(program, TARGET, 2)
    assert space is not None
    rows = space.candidates()
    columns = space.columns(rows)
    for name, value in knobs.items():
        rows = rows[columns[name] == value]
        columns = space.columns(rows)
    function = final_loops(space, space.decisions(rows[pick % len(rows)]))
    verify_function(function)
    return function


def agree(program, function, sizes):
    bound = bind(program, sizes)
    inputs = inputs_of(bound)
    actual = run_loops(bind(function, sizes), inputs)
    for output, expected in evaluate(bound, inputs).items():
        np.testing.assert_allclose(actual[output], expected, rtol=1e-4, atol=1e-5)


def tiles(function, name):
    """Extents of the unrolled loops over the rows of a tile's sum, which may be one row."""
    return {
        s.extent
        for s in walk_stmts(function.body)
        if isinstance(s, For) and s.kind is LoopKind.UNROLLED and s.var.startswith(name)
    }


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 10**6))
def test_a_product_of_any_number_of_rows(rows, m, pick):
    program = parse_ir(MATMUL)
    function = built(program, pick, rows=rows)
    (symbol,) = program.dims
    agree(program, function, {symbol: m})


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(2, 12), st.integers(0, 10**6))
def test_a_convolution_of_an_image_of_any_size(h, w, pick):
    program = parse_ir(CONV)
    function = built(program, pick)
    agree(program, function, dict(zip(program.dims, (h, w), strict=True)))


@pytest.mark.parametrize(("rows", "expected"), [(8, {4, 7, 8}), (5, {2, 4, 5}), (3, {2, 3})])
def test_tiles_are_halved_down_to_what_hides_latency(rows, expected):
    function = built(parse_ir(MATMUL), 0, rows=rows, vectors=2)
    assert tiles(function, "matmul_m_") == expected  # A loop over one row is dropped.


def test_no_tile_is_narrower_than_what_divides_the_rows():
    program = parse_ir(MATMUL.replace("[m,", "[4*m,").replace("axes(m,", "axes(4*m,"))
    function = built(program, 0, rows=12)
    assert tiles(function, "matmul_m_") & {1, 2, 4, 8, 12} == {4, 8, 12}
    (symbol,) = program.dims
    for m in (1, 2, 3, 8):
        agree(program, function, {symbol: m})


def test_no_tile_is_as_wide_as_no_tail():
    """The tail of 4·m rows in tiles of 6 has two rows or four: no tile has five."""
    program = parse_ir(MATMUL.replace("[m,", "[4*m,").replace("axes(m,", "axes(4*m,"))
    function = built(program, 0, rows=6)
    assert tiles(function, "matmul_m_") == {2, 4, 6}
    (symbol,) = program.dims
    for m in (1, 2, 3, 4):
        agree(program, function, {symbol: m})


def test_what_a_select_reads_is_written():
    """A tile that is read beyond what its sum is guarded for, under a Select, stays whole."""
    function = finalize(parse_ir(SELECT))
    assert tiles(function, "i") == tiles(function, "j") == {8}
    (symbol,) = function.dims
    for m in (1, 3, 8, 13):
        bound = bind(function, {symbol: m})
        a = np.arange(3 * m, dtype=np.float32).reshape(m, 3)
        expected = np.zeros(-(-m // 8) * 8, np.float32)
        expected[:m] = a.sum(axis=1)
        y = run_loops(bound, {"a": a})["y"]
        np.testing.assert_array_equal(y, expected)


def test_what_stands_beside_a_tile_is_not_copied_with_its_widths():
    function = finalize(parse_ir(BESIDE))
    assert tiles(function, "j") == {4, 7, 8}
    stores = [s for s in walk_stmts(function.body) if isinstance(s, Store)]
    assert sum(store.buffer.name == "z" for store in stores) == 1
    (symbol,) = function.dims
    for m in (1, 3, 8, 13, 20):
        a = np.arange(3 * m, dtype=np.float32).reshape(m, 3)
        actual = run_loops(bind(function, {symbol: m}), {"a": a})
        np.testing.assert_array_equal(actual["y"], np.stack([a.sum(axis=1)] * 2))
        assert (actual["z"] == 1).all()


def test_sums_of_tails_are_not_unrolled():
    function = built(parse_ir(MATMUL), 0, rows=8, vectors=2, unroll=4)
    steps = [s for s in walk_stmts(function.body) if isinstance(s, For) and "in_step" in s.var]
    kinds = {kind: {s.var for s in steps if s.kind is kind} for kind in LoopKind}
    assert kinds[LoopKind.UNROLLED]
    assert kinds[LoopKind.SERIAL]
    assert all("tail" in name for name in kinds[LoopKind.SERIAL])


def filled(*extents):
    """A loop for each extent, one after the other, each filling as much of `y`."""
    loops = (
        f"    for {name} in unrolled({extent}):\n        y[{name}] = 1.0"
        for name, extent in zip(("i", "i_tail"), extents, strict=False)
    )
    return parse_ir("@function\ndef fill(y: f32[8]):\n" + "\n".join(loops)).body


def test_a_partitioned_tile_is_shortened_in_all_copies_of_its_loop():
    actual = shortened(filled(7, 7), filled(7), filled(4), {"i_tail": "i"})
    assert actual == filled(4, 4)


@pytest.mark.parametrize(("parts", "short"), [((7,), 1), ((3, 4), 5)])
def test_one_iteration_and_a_loop_that_was_cut_are_partitioned_anew(parts, short):
    assert shortened(filled(*parts), filled(7), filled(short), {"i_tail": "i"}) is None
