"""Primitive swizzle: a permutation of the rows of a workgroup buffer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.run_threads import run_threads
from farrier.ir.verify_kernel import verify_function
from farrier.lower.lower_threads import lower_threads
from farrier.ops.verify import verify
from farrier.schedule.nest import allocated
from tests.schedule.checks import assert_refused, scheduled

TURN = """
@function
def turn(a: f32[2, {width}, {rows}], b: f32[2, {rows}, {width}]):
    for i in block(2):
        with alloc(f32[{rows}, {width}] in {scope}) as t:
            for j in thread({threads}):
                for k in serial({turns}):
                    if k * {threads} + j < {rows} * {width}:
                        t[(k * {threads} + j) % {rows}, (k * {threads} + j) // {rows}] = \
a[i, (k * {threads} + j) // {rows}, (k * {threads} + j) % {rows}]
            for l in thread({threads}):
                for m in serial({turns}):
                    if m * {threads} + l < {rows} * {width}:
                        b[i, (m * {threads} + l) // {width}, (m * {threads} + l) % {width}] = \
t[(m * {threads} + l) // {width}, (m * {threads} + l) % {width}]
"""


def turn(rows=16, width=32, threads=32, scope="workgroup"):
    """Return the text of a kernel that transposes tiles."""
    turns = -(-rows * width // threads)
    return TURN.format(rows=rows, width=width, threads=threads, turns=turns, scope=scope)


@st.composite
def swizzles(draw):
    chunk, rows = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    count = 1 << draw(st.integers(0, 4))
    return chunk, rows, count, chunk * count * draw(st.integers(1, 3))


@given(swizzles(), st.integers(1, 13), st.integers(1, 40), st.integers(0, 3))
def test_the_meaning_stays(swizzle, rows, threads, seed):
    *arguments, width = swizzle
    text = turn(rows, width, threads)
    kernel = scheduled(text, f'swizzle("t", {", ".join(map(str, arguments))})')
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, width, rows)).astype(np.float32)
    for result in (
        run_loops(kernel, {"a": a}, seed=seed),
        run_threads(lower_threads(kernel), {"a": a}),
    ):
        np.testing.assert_array_equal(result["b"], a.transpose(0, 2, 1))


@given(swizzles(), st.integers(1, 13))
def test_each_element_has_a_place_of_its_own_in_its_row(swizzle, rows):
    *arguments, width = swizzle
    step = f'swizzle("t", {", ".join(map(str, arguments))})'
    (buffer,) = allocated(scheduled(turn(rows, width, 8), step).body)
    for row in range(rows):
        places = [
            flatten(buffer, (e.index(row), e.index(column)), Simplifier({}), 1)
            for column in range(width)
        ]
        assert all(not place.terms for place in places)
        assert sorted(place.const for place in places) == [row * width + n for n in range(width)]


def test_an_address_of_variables_is_that_of_their_values():
    (buffer,) = allocated(scheduled(turn(), 'swizzle("t", 2, 3, 8)').body)
    ranges = {"r": 4, "c": 8}
    simplifier = Simplifier(ranges)
    row = e.add(e.mul(e.Var("r"), 4), 1)
    form = flatten(buffer, (row, e.add(e.mul(e.Var("c"), 4), 1)), simplifier, 4)
    low, high = simplifier.bounds_of(form)
    assert 0 <= low <= high < 2 * 16 * 32 * 4  # Of an exclusive or, the highest bit is known.
    for r, c in itertools.product(range(4), range(8)):
        values = Simplifier({"r": 1, "c": 1})
        at = (e.index(r * 4 + 1), e.index(c * 4 + 1))
        place = (r * 4 + 1) * 32 + ((c * 2 ^ (r * 4 + 1) // 3 % 8) * 2 + 1)
        assert flatten(buffer, at, values, 1).const == place


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ('swizzle("t", 1, 1, 12)', "a swizzle of 12 chunks of 1 by 1 rows"),
        ('swizzle("t", 1, 0, 8)', "a swizzle of 8 chunks of 1 by 0 rows"),
        ('swizzle("t", 3, 1, 8)', "a row has 32 elements, not 8 chunks of 3"),
        ('swizzle("a", 1, 1, 8)', "no buffer a is allocated; the allocated ones: t"),
    ],
)
def test_it_refuses(step, reason):
    assert_refused(turn(), step, reason)


def test_it_refuses_what_has_no_banks_or_is_swizzled():
    assert_refused(turn(scope="workspace"), 'swizzle("t", 1, 1, 8)', "t lies in workspace")
    done = ('swizzle("t", 1, 1, 8)',)
    assert_refused(turn(), 'swizzle("t", 1, 1, 8)', "t has a swizzle already", after=done)
    assert_refused(turn(), 'pad_axis("t", 1, 33)', "its rows must keep filling", after=done)
    assert_refused(turn(), 'set_scope("t", "local")', "only workgroup buffers", after=done)
    assert_refused(turn(), 'merge_axes("t", 0)', "do not lie together", after=done)
    layout = 'transform_layout("t", Layout(((0, 1, 0), (1, 1, 0)), swizzle=(1, 1, 8)))'
    assert_refused(turn(), layout, "the primitive `swizzle` checks one")


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("f32[16, 32] @ layout(0, 1, swizzle=(1, 1, 8)) in workspace", "but lies in workspace"),
        ("f32[16, 32] @ layout(0, 1, swizzle=(1, 1, 3)) in workgroup", "3 chunks of 1 by 1 rows"),
        ("f32[16, 36] @ layout(0, 1, swizzle=(1, 1, 8)) in workgroup", "a row has 36 elements"),
        ("f32[512] @ layout(0, swizzle=(1, 1, 8)) in workgroup", "at least two dimensions"),
    ],
)
def test_the_verifier_refuses_a_swizzle_that_is_none(type_, message):
    text = turn().replace("f32[16, 32] in workgroup", type_)
    if "[512]" in type_:
        text = text.replace("t[(k * 32 + j) % 16, (k * 32 + j) // 16]", "t[k * 32 + j]").replace(
            "t[(m * 32 + l) // 32, (m * 32 + l) % 32]", "t[m * 32 + l]"
        )
    with pytest.raises(CompilerError, match=message):
        verify_function(parse_ir(text))


def test_an_input_of_a_graph_has_no_swizzle():
    graph = "@graph\ndef g(x: f32[4, 8] @ layout(0, 1, swizzle=(1, 1, 8))):\n    return x\n"
    with pytest.raises(CompilerError, match="only workgroup buffers of kernels have a swizzle"):
        verify(parse_ir(graph))
