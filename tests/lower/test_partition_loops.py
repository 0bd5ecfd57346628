"""Finalizing leaves hot loops without conditions, and tails with constant extents."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.expr import Const
from farrier.ir.loop import Alloc, For, If, LoopKind, Store
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.statements import walk_stmts
from farrier.ir.types import DType
from farrier.ir.verify_kernel import verify_function
from farrier.schedule.nest import loops
from tests.ir.bind import bind
from tests.lowering import finalize

CASES = {
    "a split loop is cut at its tail": (
        """
@function
def tail(a: f32[10], b: f32[10]):
    for o in serial(3):
        for i in vectorized(4):
            if o * 4 + i < 10:
                b[o * 4 + i] = a[o * 4 + i]
""",
        """
@function
def tail(a: f32[10], b: f32[10]):
    for o in serial(2):
        for i in vectorized(4):
            b[o * 4 + i] = a[o * 4 + i]
    for i_tail in vectorized(2):
        b[i_tail + 8] = a[i_tail + 8]
""",
    ),
    "a parallel loop gets an if": (
        """
@function
def rows(a: f32[10], b: f32[10]):
    for o in parallel(3):
        for i in unrolled(4):
            if o * 4 + i < 10:
                b[o * 4 + i] = a[o * 4 + i]
""",
        """
@function
def rows(a: f32[10], b: f32[10]):
    for o in parallel(3):
        if o < 2:
            for i in unrolled(4):
                b[o * 4 + i] = a[o * 4 + i]
        else:
            for i_tail in unrolled(2):
                b[i_tail + 8] = a[i_tail + 8]
""",
    ),
    "a digit of a fused loop decides": (
        """
@function
def fused(a: f32[6, 10], b: f32[6, 10]):
    for f in serial(18):
        for i in vectorized(4):
            if f % 3 * 4 + i < 10:
                b[f // 3, f % 3 * 4 + i] = a[f // 3, f % 3 * 4 + i]
""",
        """
@function
def fused(a: f32[6, 10], b: f32[6, 10]):
    for f in serial(18):
        if f % 3 < 2:
            for i in vectorized(4):
                b[f // 3, f % 3 * 4 + i] = a[f // 3, f % 3 * 4 + i]
        else:
            for i_tail in vectorized(2):
                b[f // 3, i_tail + 8] = a[f // 3, i_tail + 8]
""",
    ),
    "padding costs its border alone": (
        """
@function
def pad(a: f32[6], b: f32[9]):
    for i in serial(9):
        b[i] = a[i - 2] if 1 < i and i < 8 else 0.0
""",
        """
@function
def pad(a: f32[6], b: f32[9]):
    for i in serial(2):
        b[i] = 0.0
    for i_tail in serial(6):
        b[i_tail + 2] = a[i_tail]
    b[8] = 0.0
""",
    ),
    "what is uniform within is tested outside": (
        """
@function
def window(a: f32[5, 8], b: f32[5, 8]):
    for i in parallel(5):
        for k in serial(3):
            for j in serial(8):
                b[i, j] = b[i, j] + (a[i + k - 1, j] if 0 < i + k and i + k < 6 else 0.0)
""",
        """
@function
def window(a: f32[5, 8], b: f32[5, 8]):
    for i in parallel(5):
        for k in serial(3):
            if 0 < i + k:
                if i + k < 6:
                    for j in serial(8):
                        b[i, j] = b[i, j] + a[i + k - 1, j]
""",
    ),
    "loops of one iteration and dead code go": (
        """
@function
def dead(a: f32[4], b: f32[4]):
    with alloc(f32[4] in local) as t:
        for n in serial(1):
            for i in serial(4):
                if i + 4 < n:
                    t[i] = a[i]
    for m in serial(1):
        for j in serial(4):
            b[m * 4 + j] = a[(m * 4 + j) % 4]
""",
        """
@function
def dead(a: f32[4], b: f32[4]):
    for j in serial(4):
        b[j] = a[j]
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_finalized_code(case):
    before, after = (parse_ir(text) for text in CASES[case])
    final = finalize(before)
    verify_function(final)
    assert print_ir(final).split("\n") == print_ir(after).split("\n")
    rng = np.random.default_rng(3)
    inputs = {"a": rng.standard_normal(before.params[0].shape).astype(np.float32)}
    start = {"b": rng.standard_normal(before.params[1].shape).astype(np.float32)}
    expected = run_loops(before, inputs, initial=start)["b"]
    np.testing.assert_array_equal(run_loops(final, inputs, initial=start)["b"], expected)


def test_copies_for_the_sake_of_selects_are_limited():
    """A large unrolled body keeps its Selects; guards of an If are taken out all the same."""
    text = """
@function
def large(a: f32[40, 400], b: f32[41, 400]):
    for i in serial(41):
        for j in unrolled(400):
            b[i, j] = a[i - 1, j] if 0 < i else 0.0
"""
    final = finalize(parse_ir(text))
    assert len([s for s in walk_stmts(final.body) if isinstance(s, Store)]) == 1
    guarded = text.replace("b[i, j] =", "if i * 400 + j < 16200:\n                b[i, j] =")
    final = finalize(parse_ir(guarded))
    assert not any(isinstance(s, If) for s in walk_stmts(final.body))
    assert [loop.extent for loop in loops(final.body) if loop.kind is LoopKind.UNROLLED] == [
        400,
        200,
    ]


_WHOLE_TILE = """
@function(m=dim(1, 8, 8))
def tile(a: f32[m, 16], y: f32[m]):
    with alloc(f32[8] in register) as t:
        for j in unrolled(8):
            t[j] = 0.0
        for k in serial(16):
            for i in unrolled(8):
                if i < m:
                    if i < 8:
                        t[i] = t[i] + a[i, k]
        for r in unrolled(8):
            if r < m:
                y[r] = t[r]
"""


def test_a_tile_no_image_fills_is_summed_whole_beside_conditions_that_always_hold():
    text = print_ir(finalize(parse_ir(_WHOLE_TILE)))
    assert "t[i] + a[min(i, m - 1), k]" in text
    assert text.count("if ") == 1


_CHUNKS = """
@function(n=dim(1, 300, 100), c=(n + 1) // 2)
def chunks(a: f32[n], y: f32[n]):
    for o in parallel(2):
        for i in serial(c):
            if o * c + i < n:
                y[o * c + i] = a[o * c + i]
"""


def test_a_chunk_of_a_size_that_is_a_symbol_has_no_guard_where_it_is_whole():
    lines = print_ir(finalize(parse_ir(_CHUNKS))).splitlines()
    at = next(number for number, line in enumerate(lines) if "if " in line)
    rest = lines.index("        else:")
    assert not any("if " in line for line in lines[at + 1 : rest])
    assert any("if " in line for line in lines[rest:])


_STRIPS = """
@function(h=dim(1, 300, 100), lines=(h + 1) // 2)
def strips(a: f32[h, 40], y: f32[h, 40]):
    for strip in parallel(2):
        with alloc(f32[lines, 40] in local) as t:
            for line in serial(lines):
                for i in serial(40):
                    if strip * lines + line < h:
                        t[line, i] = a[strip * lines + line, i]
            for row in serial(lines):
                for j in serial(40):
                    if strip * lines + row < h:
                        y[strip * lines + row, j] = t[row, j] + 1.0
"""


def test_a_loop_of_work_that_decides_a_guard_by_itself_keeps_it():
    """Each loop over lines tests them; seen from the strips, both would be copied for either."""
    final = finalize(parse_ir(_STRIPS))
    kinds = [type(s).__name__ for s in walk_stmts(final.body) if isinstance(s, If | Store)]
    assert kinds == ["If", "Store", "If", "Store"]
    rng = np.random.default_rng(0)
    for h in (1, 2, 7, 300):
        bound = bind(final, dict.fromkeys(final.dims, h))
        a = rng.standard_normal((h, 40)).astype(np.float32)
        np.testing.assert_array_equal(run_loops(bound, {"a": a})["y"], a + np.float32(1))


_PADDED_STRIPS = """
@function
def strips(a: f32[12, 40], y: f32[12, 40]):
    for strip in %s(3):
        with alloc(f32[6, 40] in local) as t:
            for line in serial(6):
                for i in serial(40):
                    t[line, i] = 0.0
                    if 0 <= strip * 4 + line - 1 and strip * 4 + line - 1 < 12:
                        t[line, i] = a[strip * 4 + line - 1, i]
            for row in serial(4):
                for j in unrolled(40):
                    y[strip * 4 + row, j] = t[row, j] + (t[row + 1, j] + t[row + 2, j])
"""


@pytest.mark.parametrize("kind", ["parallel", "serial"])
@pytest.mark.parametrize(("width", "copies"), [(40, 3), (400, 1)])
def test_much_work_is_not_copied_for_lines_that_decide_a_guard(kind, width, copies):
    """Little work has a copy for the first strip and the last, whose lines lie partly outside."""
    final = finalize(parse_ir(_PADDED_STRIPS.replace("40", str(width)) % kind))
    stores = [s.buffer.name for s in walk_stmts(final.body) if isinstance(s, Store)]
    assert stores.count("y") == copies
    a = np.random.default_rng(0).integers(9, size=(12, width)).astype(np.float32)
    padded = np.pad(a, ((1, 1), (0, 0)))
    wanted = padded[:-2] + (padded[1:-1] + padded[2:])
    np.testing.assert_array_equal(run_loops(final, {"a": a})["y"], wanted)


_TILES = """
@function(h=dim(1, 300, 100), tiles=(h + 11) // 12)
def strips(a: f32[h, 40], y: f32[h, 40]):
    for strip in parallel(2):
        with alloc(f32[6*tiles, 40] in local) as t:
            for edge in serial(6*tiles):
                if strip * (6*tiles) + edge < h:
                    t[edge, 0] = a[strip * (6*tiles) + edge, 0]
            for tile in serial(tiles):
                for i in serial(40):
                    for line in unrolled(6):
                        if strip * (6*tiles) + (tile * 6 + line) < h:
                            t[tile * 6 + line, i] = a[strip * (6*tiles) + (tile * 6 + line), i]
            for row in serial(tiles):
                for j in serial(40):
                    for in_row in unrolled(6):
                        if strip * (6*tiles) + (row * 6 + in_row) < h:
                            y[strip * (6*tiles) + (row * 6 + in_row), j] = t[row * 6 + in_row, j]
"""


def test_guards_of_tiles_and_of_little_work_stay_with_their_loops():
    """Code seen from the strips would be copied whole: each store stands there twice at most, where
    a tile is whole and where it is not."""
    final = finalize(parse_ir(_TILES))
    stores = [s.buffer.name for s in walk_stmts(final.body) if isinstance(s, Store)]
    assert sorted(stores) == ["t", "t", "t", "y", "y"]
    rng = np.random.default_rng(0)
    for h in (1, 6, 7, 12, 300):
        bound = bind(final, dict.fromkeys(final.dims, h))
        a = rng.standard_normal((h, 40)).astype(np.float32)
        np.testing.assert_array_equal(run_loops(bound, {"a": a})["y"], a)


_UNREAD = """
@function
def unread(a: f32[4], y: f32[4]):
    for i in serial(2):
        with alloc(f32[1] in register) as t:
            t[0] = 0.0
            for k in serial(4):
                t[0] = t[0] + a[k]
            y[i] = t[0] if i < 1 else 1.0
"""


def test_a_sum_that_nothing_reads_is_not_computed():
    final = finalize(parse_ir(_UNREAD))
    assert sum(isinstance(s, Alloc) for s in walk_stmts(final.body)) == 1
    stores = [s.buffer.name for s in walk_stmts(final.body) if isinstance(s, Store)]
    assert sorted(stores) == ["t", "t", "y", "y"]


_BLOCKS = """
@function(n=dim(1, 300, 100))
def blocks(a: f32[n, 40], y: f32[n, 40]):
    for part in parallel((n + 23) // 24):
        for block in serial(4):
            with alloc(f32[6, 40] in local) as t:
                for row in serial(2):
                    for i in serial(40):
                        for in_row in unrolled(3):
                            if part * 24 + block * 6 + (row * 3 + in_row) < n:
                                t[row * 3 + in_row, i] = a[part * 24 + block * 6 + (row * 3 + in_row), i]
                for again in serial(6):
                    for j in unrolled(40):
                        if part * 24 + block * 6 + again < n:
                            y[part * 24 + block * 6 + again, j] = t[again, j] + 1.0
"""  # noqa: E501


def test_a_guard_of_several_loops_is_left_to_the_outermost_of_them():
    """Seen from the parts or the blocks, all their content would be copied for the parts and blocks
    that reach beyond the end."""
    final = finalize(parse_ir(_BLOCKS))
    stores = [s.buffer.name for s in walk_stmts(final.body) if isinstance(s, Store)]
    # The two stores to `t` are for three whole rows and for fewer.
    assert stores == ["t", "t", "y"]
    rng = np.random.default_rng(0)
    for n in (1, 3, 5, 24, 25, 71, 300):
        bound = bind(final, dict.fromkeys(final.dims, n))
        a = rng.standard_normal((n, 40)).astype(np.float32)
        np.testing.assert_array_equal(run_loops(bound, {"a": a})["y"], a + np.float32(1))


_BORDERED = """
@function(h=dim(1, 300, 100), w=dim(1, 300, 56))
def bordered(a: f32[h, w, 3], y: f32[h + 2, w]):
    for strip in parallel((h + 5) // 4):
        for line in serial(4):
            if strip * 4 + line < h + 2:
                for column in serial((w + 7) // 8):
                    with alloc(f32[8] in register) as t:
                        for z in unrolled(8):
                            t[z] = 0.0
                        for k in serial(3):
                            for i in unrolled(8):
                                if column * 8 + i < w and 0 <= strip * 4 + line - 1 and strip * 4 + line - 1 < h:
                                    t[i] = t[i] + a[strip * 4 + line - 1, column * 8 + i, k]
                        for j in unrolled(8):
                            if column * 8 + j < w:
                                y[strip * 4 + line, column * 8 + j] = t[j] if 0 <= strip * 4 + line - 1 and strip * 4 + line - 1 < h else 0.0
"""  # noqa: E501


def test_lines_of_padding_are_filled_by_little_code():
    """Nothing is summed above and below the image, so this code has neither tiles nor tails."""
    final = finalize(parse_ir(_BORDERED))
    fills = [
        loop
        for loop in walk_stmts(final.body)
        if isinstance(loop, For)
        and all(s.value == Const(0.0, DType.F32) for s in walk_stmts(loop) if isinstance(s, Store))
        and any(isinstance(s, Store) and s.buffer.name == "y" for s in walk_stmts(loop))
    ]
    assert fills
    assert all(loop.kind is LoopKind.SERIAL for loop in fills)
    rng = np.random.default_rng(0)
    for h, w in ((1, 1), (3, 8), (2, 7), (5, 57)):
        bound = bind(final, {s: {"h": h, "w": w}[s.name] for s in final.dims})
        a = rng.integers(9, size=(h, w, 3)).astype(np.float32)
        wanted = np.pad(a.sum(-1), ((1, 1), (0, 0)))
        np.testing.assert_array_equal(run_loops(bound, {"a": a})["y"], wanted)


def test_a_condition_within_the_same_one_is_asked_once():
    text = """
@function(n=dim(1, 300, 100))
def twice(a: f32[n], y: f32[n]):
    for i in vectorized(16):
        if i < n:
            if i < n:
                y[i] = a[i]
"""
    final = finalize(parse_ir(text))
    assert sum(isinstance(s, If) for s in walk_stmts(final.body)) == 1
