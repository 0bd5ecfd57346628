"""Each barrier, condition, copy and thread of the kernels here matters: without it the run ends in
an error, or with another result. `_does_not_matter` names the exceptions, with the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from farrier.errors import CompilerError
from farrier.ir.expr import Expr
from farrier.ir.loop import Barrier, Block, For, Function, If, LoopKind, Stmt, Store
from farrier.ir.printer import print_ir
from farrier.ir.run_threads import run_threads
from farrier.ir.statements import below, map_children
from farrier.lower.lower_threads import lower_threads
from tests.ir.kernels import KERNELS, inputs_of


def _without(stmt: Stmt) -> Stmt | None:
    """Return the rest of a statement that a mutant takes away, or None if no mutant does."""
    match stmt:
        case Barrier() | Store():
            return Block(())
        case If(_, then, None):
            return then
        case For(var, extent, LoopKind.THREAD | LoopKind.BLOCK as kind, body) if extent != 1:
            return For(var, extent - 1, kind, body)
    return None


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return new if stmt is old else map_children(stmt, lambda part: _replaced(part, old, new))


def mutants(function: Function) -> Iterator[tuple[Stmt, Function]]:
    """Yield each statement that matters, and the function without it."""
    for stmt, around in _under(function.body, frozenset()):
        left = _without(stmt)
        if left is not None and not _does_not_matter(stmt, around):
            body = _replaced(function.body, stmt, left)
            yield stmt, dataclasses.replace(function, body=body)


def _under(stmt: Stmt, around: frozenset[Expr]) -> Iterator[tuple[Stmt, frozenset[Expr]]]:
    """Yield each statement with the conditions around it."""
    yield stmt, around
    inner = around | {stmt.condition} if isinstance(stmt, If) else around
    for part in below(stmt):
        yield from _under(part, inner)


def _does_not_matter(stmt: Stmt, around: frozenset[Expr]) -> bool:
    """Check whether no result can depend on a statement."""
    if not isinstance(stmt, If):
        return False
    inner: Stmt = stmt.then
    tested = set(around)
    while isinstance(inner, If):
        tested.add(inner.condition)
        inner = inner.then
    if stmt.condition in tested:
        return True  # Another condition tests the same.
    # Sums that are each thread's own may begin at 0 where no element of the output is theirs.
    return isinstance(inner, Store) and inner.buffer.name == "acc" and "= 0.0" in print_ir(inner)


@pytest.mark.parametrize("name", KERNELS)
def test_whatever_is_taken_away_is_missed(name):
    function, meaning = KERNELS[name]
    lowered, output = lower_threads(function), function.params[-1].name
    inputs = inputs_of(function)
    expected = meaning(*inputs.values())
    survivors, count = [], 0
    for stmt, mutant in mutants(lowered):
        count += 1
        try:
            result = run_threads(mutant, inputs)[output]
        except CompilerError:
            continue
        if np.allclose(result, expected, 1e-5, 1e-5):
            survivors.append(print_ir(stmt))
    assert count >= 4
    assert not survivors
