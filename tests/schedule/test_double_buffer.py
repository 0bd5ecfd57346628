"""Primitive double_buffer: the copy for the next turn goes on during a turn."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.expr import Binary, BinaryOp
from farrier.ir.loop import Barrier, Block, For, Function, Stmt
from farrier.ir.printer import print_ir
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import map_children, walk_stmts
from farrier.ir.walk import rewrite
from farrier.lower.loops import to_loops
from farrier.lower.lower_threads import lower_threads
from farrier.schedule import Schedule
from tests.ir.test_mutants import mutants
from tests.schedule.checks import assert_refused, scheduled
from tests.schedule.programs import inputs_of, matmul

SUMS = """
@function
def sums(a: f32[{turns}, {width}], b: f32[{threads}]):
    for i in block(1):
        with alloc(f32[{threads}] in register) as s:
            for j in thread({threads}):
                s[j] = 0.0
            for k in serial({turns}):
                with alloc(f32[{width}] in workgroup) as t:
                    for l in thread({threads}):
                        for m in serial({each}):
                            if m * {threads} + l < {width}:
                                t[m * {threads} + l] = a[k, m * {threads} + l]
                    for n in thread({threads}):
                        for o in serial({width}):
                            s[n] = s[n] + t[{width} - 1 - o] * ((o + n + k) % 3)
            for p in thread({threads}):
                b[p] = s[p]
"""


def sums(turns=5, width=11, threads=4):
    """Return the text of a kernel whose threads add up staged rows, and its result."""
    each = -(-width // threads)
    text = SUMS.format(turns=turns, width=width, threads=threads, each=each)
    return text.replace("((o + n + k) % 3)", "cast(f32, (o + n + k) % 3)")


def barriers(function: Function, loop: str = "") -> int:
    """Return the barriers of a kernel, or of one of its loops."""
    for stmt in walk_stmts(function.body):
        if isinstance(stmt, For) and stmt.var == loop:
            return sum(isinstance(part, Barrier) for part in walk_stmts(stmt))
    return sum(isinstance(part, Barrier) for part in walk_stmts(function.body))


@pytest.mark.long
@given(st.integers(1, 5), st.integers(1, 13), st.integers(1, 9))
def test_a_turn_has_one_barrier(turns, width, threads):
    text = sums(turns, width, threads)
    steps = (), ('double_buffer("t")',)
    before, after = (lower_threads(scheduled(text, *each)) for each in steps)
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (turns, width)).astype(np.float32)
    results = [run_threads(function, {"a": a})["b"] for function in (before, after)]
    np.testing.assert_array_equal(*results)
    if turns > 1 and threads > 1:
        assert (barriers(before, "k"), barriers(after, "k")) == (2, 1)


def product(stages=2):
    """Return a product by tiles, and its program."""
    program = matmul(11, 17, 26)
    schedule = Schedule(to_loops(program))
    schedule.tile_product("y", "y", (4, 8), (2, 2), 4)
    for name in ("y_rows", "y_columns") if stages > 1 else ():
        schedule.double_buffer(name)
    return program, lower_threads(schedule.function)


def test_a_product_has_one_barrier_in_place_of_two():
    assert [barriers(product(stages)[1]) for stages in (1, 2)] == [2, 1]


def test_whatever_is_taken_away_is_missed():
    program, kernel = product()
    inputs = inputs_of(program)
    expected = run_threads(kernel, inputs)["y"]
    survivors = []
    for stmt, mutant in mutants(kernel):
        try:
            result = run_threads(mutant, inputs)["y"]
        except CompilerError:
            continue
        if np.allclose(result, expected, 1e-5, 1e-5):
            survivors.append(print_ir(stmt))
    # What the last turn would load and store for another one, nobody reads.
    ahead = [text for text in survivors if text.startswith("if y_ko < 6:")]
    assert len(ahead) == 4
    # Sums and factors beyond the result may be anything.
    assert not [text for text in survivors if text not in ahead and "= 0.0" not in text]


def _one_half(node: Any) -> Any:
    is_half = isinstance(node, Binary) and node.op is BinaryOp.MOD and node.right == e.index(2)
    return e.index(0) if is_half else node


def test_one_half_is_not_enough():
    program, kernel = product()
    mutant = dataclasses.replace(kernel, body=rewrite(kernel.body, _one_half))
    with pytest.raises(CompilerError, match="threads race for an element of y_"):
        run_threads(mutant, inputs_of(program))


def _without_barriers(stmt: Stmt) -> Stmt:
    return Block(()) if isinstance(stmt, Barrier) else map_children(stmt, _without_barriers)


def test_the_barrier_is_needed():
    program, kernel = product()
    mutant = dataclasses.replace(kernel, body=_without_barriers(kernel.body))
    with pytest.raises(CompilerError, match="threads race for an element of y_"):
        run_threads(mutant, inputs_of(program))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("in workgroup", "in local", "t lies in local, not in workgroup memory"),
        ("for k in serial(5)", "for k in unrolled(5)", "t is not allocated within a serial loop"),
        ("a[k, ", "b[", "the copy to t reads b, which the launch writes"),
        ("for n in thread(4):", "for n in thread(4):\n                        t[n] = 0.0", "once"),
        ("for m in serial(3)", "for m in serial(65)", "a thread copies more of t than it can keep"),
    ],
)
def test_it_refuses(old, new, reason):
    assert_refused(sums().replace(old, new), 'double_buffer("t")', reason)


def test_it_refuses_what_is_no_buffer_or_has_halves_already():
    assert_refused(sums(), 'double_buffer("a")', "no buffer a is allocated")
    reason = "t is not allocated within a serial loop"
    assert_refused(sums(), 'double_buffer("t")', reason, after=('double_buffer("t")',))
