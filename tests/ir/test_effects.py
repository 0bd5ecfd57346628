"""The effects that statements declare, by which no stranger among them is ever passed."""

import dataclasses
import typing

import pytest

from farrier.ir.affine import Simplifier
from farrier.ir.expr import Buffer, Const, Load, MemoryScope, Var
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    Effect,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Statement,
    Stmt,
    Store,
    Tile,
    While,
)
from farrier.ir.printer import print_ir
from farrier.ir.run_loops import run_loops
from farrier.ir.types import DType
from farrier.ir.verify_kernel import verify_function
from farrier.ir.work import arithmetic, statements_run
from farrier.lower.eliminate_dead_stores import eliminate_dead_stores
from farrier.lower.guards import Guards
from farrier.lower.merge_halos import merge_halos
from farrier.lower.narrow_tiles import is_idle, narrow
from farrier.lower.partition_loops import partition_loops
from farrier.lower.pruning import pruned
from farrier.schedule.accesses import accesses, is_straight_line
from farrier.schedule.nest import guarded
from farrier.schedule.primitives import PRIMITIVES
from farrier.targets import parse_target
from farrier.targets.cpu.codegen import emit_function

X, Y, Z = (Buffer(name, DType.F32, (8,)) for name in "xyz")
AT = (Var("i"),)
TRUE = Const(True, DType.BOOL)
STORE = Store(Y, AT, Load(X, AT))
NO_CONTEXT = Simplifier({})
STRANGER = r"Stranger\(\)|nothing passes"

# Each statement with its effect and the names of what it writes, reads and hints at itself.
DECLARED = [
    (Block((STORE,)), Effect.NONE, "", "", ""),
    (For("i", 8, LoopKind.SERIAL, STORE), Effect.NONE, "", "", ""),
    (Alloc(X, STORE), Effect.NONE, "", "", ""),
    (If(TRUE, STORE), Effect.NONE, "", "", ""),
    (While(TRUE, STORE), Effect.NONE, "", "", ""),
    (STORE, Effect.STORE, "y", "", ""),
    (Prefetch(X, AT), Effect.HINT, "", "", "x"),
    (Intrinsic("dot", tuple(Tile(b, AT) for b in (X, Y, Z))), Effect.CALL, "x", "xyz", ""),
    (Barrier(MemoryScope.WORKGROUP), Effect.BARRIER, "", "", ""),
]


@pytest.mark.parametrize(("stmt", "effect", "writes", "reads", "hints"), DECLARED)
def test_a_statement_declares_what_it_touches(stmt, effect, writes, reads, hints):
    assert stmt.effect is effect
    for buffers, names in (stmt.writes, writes), (stmt.reads, reads), (stmt.hints, hints):
        assert "".join(buffer.name for buffer in buffers) == names


def test_the_table_here_holds_every_statement():
    assert {type(stmt) for stmt, *_ in DECLARED} == set(typing.get_args(Stmt))


def test_a_statement_that_declares_no_effect_is_refused():
    with pytest.raises(TypeError, match="the statement Fence declares no effect"):
        type("Fence", (Statement,), {})


@dataclasses.dataclass(frozen=True, slots=True)
class Stranger(Statement):
    """A statement that no room of the compiler knows."""

    effect = "nothing passes"  # type: ignore[assignment]


def _function(kind=LoopKind.SERIAL):
    copies = [
        For(var, 8, kind, Store(to, (Var(var),), Load(source, (Var(var),))))
        for var, to, source in (("i", Y, X), ("j", Z, Y))
    ]
    loop = For("o", 4, kind, Block((copies[0], Stranger(), copies[1])))
    return Function("copy", (X, Y, Z), loop)


READERS = {
    "print": print_ir,
    "verify": verify_function,
    "run": lambda function: run_loops(function, {}),
    "arithmetic": arithmetic,
    "statements": lambda function: statements_run(function.body, 1),
    "accesses": lambda function: accesses(function.body),
    "straight": lambda function: is_straight_line(function.body.body.statements[1]),
    "guarded": lambda function: guarded(function.body, TRUE),
    "halos": lambda function: merge_halos(dataclasses.replace(function, body=function.body.body)),
    "idle": lambda function: is_idle(function.body.body.statements[1], NO_CONTEXT),
    "narrow": lambda function: narrow(function.body, NO_CONTEXT, Guards()),
    "pruned": lambda function: pruned(function.body, NO_CONTEXT),
    "partition": partition_loops,
    "dead stores": eliminate_dead_stores,
    "emit": lambda function: emit_function(function, parse_target("x86-64-v3")),
}


@pytest.mark.parametrize("reader", READERS)
def test_whoever_must_know_a_statement_names_a_stranger(reader):
    with pytest.raises(AssertionError, match=STRANGER):
        READERS[reader](_function())


def _grid(between):
    """Two assignments with a statement in between, at each point of a grid."""
    at = (Var("o"), Var("i"))
    x, y, z = (dataclasses.replace(buffer, shape=(4, 8)) for buffer in (X, Y, Z))
    body = Block((Store(y, at, Load(x, at)), between, Store(z, at, Load(x, at))))
    loop = For("o", 4, LoopKind.SERIAL, For("i", 8, LoopKind.SERIAL, body))
    return Function("grid", (x, y, z), loop)


def _chain(between):
    """A buffer that is computed before a statement, and read after it."""
    local = dataclasses.replace(Y, scope=MemoryScope.WORKSPACE)
    first = For("i", 8, LoopKind.SERIAL, Store(local, (Var("i"),), Load(X, (Var("i"),))))
    second = For("j", 8, LoopKind.SERIAL, Store(Z, (Var("j"),), Load(local, (Var("j"),))))
    return Function("chain", (X, Z), Alloc(local, Block((first, between, second))))


@pytest.mark.parametrize(
    ("nest", "primitive", "arguments"),
    [
        (_grid, "parallel", ("o",)),
        (_grid, "vectorize", ("i",)),
        (_grid, "reorder", (("i", "o"),)),
        (_grid, "fuse", ("o", "i", "both")),
        (_grid, "cache_read", ("x", "o", "copy")),
        (_grid, "prefetch", ("x", "o", "i", 2)),
        (_chain, "inline", ("y",)),
        (_chain, "compute_at", ("y", "j")),
    ],
)
def test_no_primitive_moves_code_past_a_stranger(nest, primitive, arguments):
    edit = PRIMITIVES[primitive]
    assert edit(nest(Block(())), *arguments) is not None
    with pytest.raises(AssertionError, match=STRANGER):
        edit(nest(Stranger()), *arguments)
