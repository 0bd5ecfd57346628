"""Loops in any order: a table that the dependence analysis must decide right, and random nests
whose proven loops run in other orders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farrier.ir import expr as e
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, MemoryScope, Var
from farrier.ir.loop import Alloc, Block, For, Function, If, LoopKind, Stmt, Store, While
from farrier.ir.parser import parse_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.substitute import Substitution
from farrier.ir.types import DType
from farrier.ir.verify_kernel import verify_function
from farrier.schedule import ScheduleError
from farrier.schedule.kind_primitives import independent
from farrier.schedule.nest import NestView, loops

HEAD = """
@function
def nest(p: i64[8], x: f32[8, 8], y: f32[8, 8], z: f32[64], n: i64[()], c: i64[8]):
    for i in serial(8):
"""
INDEPENDENT = {
    "an element of its own": "y[i, 0] = x[i, 1]",
    "a row of its own": "for j in serial(8):\n    y[i, p[j]] = x[0, j]",
    "an index that was loaded leaves rows apart": "y[i, p[i]] = x[p[i], i]",
    "its own element is read and written": "y[i, 2] = y[i, 2] + x[p[i], 0]",
    "digits of a joint axis": "for j in serial(8):\n    y[(i * 8 + j) // 8, (i * 8 + j) % 8] = 1.0",
    "a base that no iteration writes": "z[n[()] + i] = 1.0",
    "a scalar of the iteration stands for its value": """
with alloc(i64[()] in register) as row:
    row[()] = i * 8
    with alloc(i64[()] in register) as next:
        next[()] = row[()] + 1
        z[next[()]] = x[i, 0]
""",
    "a scalar of the iteration may change where it is no index": """
with alloc(f32[()] in register) as total:
    total[()] = 0.0
    for j in serial(8):
        total[()] = total[()] + x[i, j]
    y[i, 0] = total[()]
""",
    "an array of the iteration": """
with alloc(f32[8] in local) as row:
    for j in serial(8):
        row[p[j]] = x[i, j]
    for k in serial(8):
        y[i, k] = row[k]
""",
    "a while loop counts for itself": """
with alloc(i64[()] in register) as at:
    at[()] = 0
    while at[()] < p[i]:
        y[i, at[()]] = x[i, at[()]]
        at[()] = at[()] + 1
""",
    "a branch writes where the other one does": """
if i < 3:
    y[i, 0] = 1.0
else:
    y[i, 0] = x[i, 0]
""",
}
CARRIED = {
    "the element before": "z[i + 1] = z[i]",
    "a sum": "z[0] = z[0] + x[i, 0]",
    "one element": "z[3] = x[i, 0]",
    "an element of another iteration": "y[i, 0] = y[7 - i, 0]",
    "half of the index": "z[i // 2] = x[i, 0]",
    "windows that overlap": "for j in serial(3):\n    z[i + j] = x[i, j]",
    "an index that an iteration counts": "c[i] = c[p[i]]",
    "a scalar whose values overlap": """
with alloc(i64[()] in register) as at:
    at[()] = i // 2
    z[at[()]] = x[i, 0]
""",
    "a while loop counts through all rows": """
with alloc(i64[()] in register) as at:
    at[()] = 0
    while at[()] < 8:
        y[at[()], 0] = x[i, 0]
        at[()] = at[()] + 1
""",
}
UNKNOWN = {
    "an index that was loaded": "z[p[i]] = x[i, 0]",
    "a base that was loaded": "z[p[i] + i] = x[i, 0]",
    "a base that the iteration computes": """
with alloc(i64[()] in register) as base:
    base[()] = p[i] * 0 - i + p[i]
    z[base[()] + i] = x[i, 0]
""",
    "a base that an iteration changes": """
with alloc(i64[()] in register) as base:
    base[()] = 0
    while base[()] < p[i]:
        base[()] = base[()] + 1
    z[base[()] + i] = x[i, 0]
""",
    "a base that the loop writes": "z[c[0] + i] = x[i, 0]\nc[0] = p[i]",
}


def nest(body: str) -> Function:
    lines = [f"        {line}" for line in body.strip().splitlines()]
    function = parse_ir(HEAD + "\n".join(lines) + "\n")
    assert isinstance(function, Function)
    verify_function(function)
    return function


@pytest.mark.parametrize("why", INDEPENDENT)
def test_the_analysis_proves_iterations_independent(why):
    marked = independent(nest(INDEPENDENT[why]), "i")
    assert NestView(marked, "").loop("i").kind is LoopKind.INDEPENDENT


@pytest.mark.parametrize("why", [*CARRIED, *UNKNOWN])
def test_the_analysis_refuses_iterations_that_conflict_or_may(why):
    with pytest.raises(ScheduleError, match="iterations of i conflict"):
        independent(nest({**CARRIED, **UNKNOWN}[why]), "i")


# Random nests -------------------------------------------------------------------------------------

EXTENTS = {"i": 6, "j": 4}
PLACES = Buffer("p", DType.I64, (12,))
SOURCE = Buffer("x", DType.I64, (64,))  # Longer than every form is large.
MATRIX = Buffer("y", DType.I64, (6, 4))
LINE = Buffer("z", DType.I64, (64,))
SCALAR = Buffer("scalar", DType.I64, (), None, MemoryScope.REGISTER)
ROW = Buffer("row", DType.I64, (4,), None, MemoryScope.LOCAL)
COUNT = Buffer("count", DType.I64, (), None, MemoryScope.REGISTER)


def number(value: int) -> Expr:
    return Const(value, DType.I64)


class Writer:
    """A writer of the body of the loops `i` and `j`, with every index in its buffer."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self.written = [MATRIX, LINE]
        self.scalars: list[Expr] = []

    def pick(self, *options: Any) -> Any:
        return self._draw(st.sampled_from(options))

    def form(self, names: list[str]) -> Expr:
        """An index: variables, the digits of a joint one, what was loaded, and sums of these."""
        var: Expr = Var(self.pick(*names))
        kinds = ("sum", "sum", "scalar") if self.scalars else ()
        match self.pick("var", "var", "step", "joint", "digit", "loaded", "rest", *kinds):
            case "step":
                return e.add(e.mul(var, self.pick(1, 2, 4)), self.pick(0, 1))
            case "joint":
                return e.add(e.mul(Var("i"), 4), Var("j")) if "j" in names else e.mul(var, 4)
            case "digit":
                return e.floordiv(var, 2)
            case "rest":
                return e.mod(var, self.pick(2, 3))
            case "loaded":
                return Load(PLACES, (e.mod(var, 12),))
            case "scalar":
                return self.pick(*self.scalars)
            case "sum":
                return e.add(self.pick(*self.scalars), var)
        return var

    def element(self, buffer: Buffer, names: list[str]) -> tuple[Expr, ...]:
        if buffer in (SOURCE, LINE):
            return (self.form(names),)
        return tuple(e.mod(self.form(names), extent) for extent in buffer.shape)

    def value(self, names: list[str]) -> Expr:
        read = self.pick(SOURCE, *self.written)
        loaded = Load(read, self.element(read, names))
        return Binary(BinaryOp.ADD, loaded, self.form(names))

    def store(self, names: list[str]) -> Stmt:
        buffer = self.pick(*self.written)
        at = self.element(buffer, names)
        value = self.pick(self.value(names), Binary(BinaryOp.ADD, Load(buffer, at), number(3)))
        stored: Stmt = Store(buffer, at, value)
        if self.pick(False, False, True):
            stored = If(e.less(self.form(names), self.pick(1, 3)), stored)
        return stored

    def suite(self, names: list[str]) -> Stmt:
        return Block(tuple(self.store(names) for _ in range(self.pick(1, 1, 2))))

    def body(self) -> Stmt:
        """The body of `i`: statements, maybe with memory of the iteration's own around them."""
        match self.pick("count", "count", "scalar", "row", "none"):
            case "scalar":
                first = Store(SCALAR, (), self.form(["i"]))
                self.scalars.append(Load(SCALAR, ()))
                changes = [Store(SCALAR, (), self.form(["i"]))] if self.pick(False, True) else []
                return Alloc(SCALAR, Block((first, self.inner(), *changes, self.suite(["i"]))))
            case "row":
                self.written.append(ROW)
                clear = For("k", 4, LoopKind.SERIAL, Store(ROW, (Var("k"),), number(0)))
                return Alloc(ROW, Block((clear, self.inner())))
            case "count":
                start, end = Store(COUNT, (), number(0)), e.mod(self.form(["i"]), 4)
                self.scalars.append(counted := Load(COUNT, ()))
                step = Store(COUNT, (), Binary(BinaryOp.ADD, counted, number(1)))
                counts = While(e.less(counted, end), Block((self.suite(["i"]), step)))
                return Alloc(COUNT, Block((start, counts, self.inner())))
        return Block((self.suite(["i"]), self.inner()))

    def inner(self) -> Stmt:
        return For("j", EXTENTS["j"], LoopKind.SERIAL, self.suite(["i", "j"]))


@st.composite
def nests(draw: Any) -> Function:
    body = For("i", EXTENTS["i"], LoopKind.SERIAL, Writer(draw).body())
    function = Function("nest", (PLACES, SOURCE, MATRIX, LINE), body)
    verify_function(function)
    return function


def results(function: Function, seed: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    start = {b.name: rng.integers(0, 9, b.shape) for b in function.params}
    inputs = {name: start.pop(name) for name in ("p", "x")}
    return list(run_loops(function, inputs, initial=start).values())


def shuffled(function: Function, loop: For, step: int, first: int) -> Function:
    """The loop over `first`, `first + step`, …, modulo its extent."""
    at = e.mod(e.add(e.mul(Var(loop.var), step), first), loop.extent)
    path = NestView(function, "").path_to_loop(loop.var)
    body = Substitution({loop.var: at}).stmt(loop.body)
    return NestView(function, "").replace(path, For(loop.var, loop.extent, LoopKind.SERIAL, body))


@settings(max_examples=60)
@given(nests(), st.integers(0, 99), st.sampled_from([1, 3, 5]), st.integers(0, 5))
def test_loops_that_are_proven_independent_run_in_any_order(function, seed, step, first):
    proven = 0
    for loop in loops(function.body):
        try:
            reversed_loop = independent(function, loop.var)
        except ScheduleError:
            continue
        proven += 1
        expected = results(function, seed)
        others = [reversed_loop]
        if math.gcd(step, int(loop.extent)) == 1:
            others.append(shuffled(function, loop, step, first))
        for other in others:
            for array, wanted in zip(results(other, seed), expected, strict=True):
                np.testing.assert_array_equal(array, wanted)
    assume(proven)
