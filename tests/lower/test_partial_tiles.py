"""A tile that one iteration uses in part is decided where it is computed, and other work stands
there once."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.loop import Function, Store
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.verify_kernel import verify_function
from tests.lowering import finalize

ROWS = """
@function
def rows(x: f32[{m}, 4], w: f32[{beside}], y: f32[{m}, 4], z: f32[2, {beside}]):
    for n in {kind}(2):
        with alloc(f32[{beside}] in local) as s:
            for i in unrolled({beside}):
                s[i] = w[i] + 1.0
            for o in serial(2):
                with alloc(f32[13, 4] in register) as t:
                    for start in unrolled(13):
                        if n * 26 + (o * 13 + start) < {m}:
                            for lane in vectorized(4):
                                t[start, lane] = x[n * 26 + (o * 13 + start), lane]
                    for end in unrolled(13):
                        if n * 26 + (o * 13 + end) < {m}:
                            for out in vectorized(4):
                                y[n * 26 + (o * 13 + end), out] = t[end, out] + t[end, out]
            for j in serial({beside}):
                z[n, j] = s[j]
"""


def rows(m: int, beside: int, kind: str = "parallel") -> Function:
    final = finalize(parse_ir(ROWS.format(m=m, beside=beside, kind=kind)))
    verify_function(final)
    assert parse_ir(print_ir(final)) == final
    rng = np.random.default_rng(m)
    x = rng.integers(9, size=(m, 4)).astype(np.float32)
    w = rng.integers(9, size=beside).astype(np.float32)
    actual = run_loops(final, {"x": x, "w": w})
    np.testing.assert_array_equal(actual["y"], 2 * x)
    np.testing.assert_array_equal(actual["z"], np.stack([w + 1, w + 1]))
    return final


def stores(final: Function, buffer: str) -> int:
    return sum(isinstance(s, Store) and s.buffer.name == buffer for s in walk_stmts(final.body))


@pytest.mark.parametrize("kind", ["parallel", "serial"])
@pytest.mark.parametrize("m", range(40, 52))
def test_the_last_tile_is_used_in_part(m, kind):
    final = rows(m, 100, kind)
    assert stores(final, "z") == 1
    # One store writes the whole tile, the other the tile that is used in part.
    assert stores(final, "y") == 2
    assert print_ir(final).count("if ") == 1


@pytest.mark.parametrize("m", [*range(27, 39), *range(14, 26)])
def test_a_tile_behind_the_one_that_is_used_in_part_is_not_made(m):
    final = rows(m, 100)
    assert stores(final, "z") == 1
    assert stores(final, "y") == 2
    assert print_ir(final).count("if ") == 2


@pytest.mark.parametrize("m", range(1, 13))
def test_the_first_tile_may_be_the_only_one_and_used_in_part(m):
    final = rows(m, 100)
    assert stores(final, "z") == stores(final, "y") == 1
    assert print_ir(final).count("if ") == 1


@pytest.mark.parametrize("m", [13, 26, 39, 52])
def test_whole_tiles_alone_and_tiles_that_no_iteration_reaches(m):
    rows(m, 100)


def test_beside_little_work_the_outer_loop_decides():
    assert stores(rows(49, 8), "z") == 2
