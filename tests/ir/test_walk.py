"""Traversals that are derived from the fields of nodes."""

import dataclasses
import typing

import pytest
from hypothesis import given, settings
from ir_strategies import N, functions

from farrier.ir.expr import (
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    ReduceOp,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
)
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    Tile,
    While,
)
from farrier.ir.operands import attributes, map_operands, operands
from farrier.ir.statements import below, map_children, walk_stmts
from farrier.ir.types import DType
from farrier.ir.walk import mapper, parts, walk

BUFFER = Buffer("x", DType.F32, (8, 8))
ROW, COLUMN, DEPTH = Var("i"), Var("j"), Var("k")
X = Load(BUFFER, (ROW, COLUMN))
TRUE = Const(True, DType.BOOL)
FIRST, SECOND = Store(BUFFER, (ROW, COLUMN), X), Store(BUFFER, (COLUMN, DEPTH), X)
AXES = (Axis("k", 8),)

# Each expression with its operands, in the order of its fields, and all else that it holds.
EXPRESSIONS = [
    (Const(1, DType.I64), [], (1, DType.I64)),
    (ROW, [], ("i",)),
    (Size(N), [], (N,)),
    (X, [ROW, COLUMN], (BUFFER,)),
    (Unary(UnaryOp.NEG, X), [X], (UnaryOp.NEG,)),
    (Binary(BinaryOp.ADD, X, ROW), [X, ROW], (BinaryOp.ADD,)),
    (Select(TRUE, X, ROW), [TRUE, X, ROW], ()),
    (Cast(DType.F64, X), [X], (DType.F64,)),
    (ByteTable(bytes(256), DType.U8, X), [X], (bytes(256), DType.U8)),
    (Reduce(ReduceOp.SUM, AXES, X), [X], (ReduceOp.SUM, AXES)),
]
# Each statement with the statements and the expressions directly below it.
STATEMENTS = [
    (Block((FIRST, SECOND)), [FIRST, SECOND], []),
    (Block(()), [], []),
    (For("i", 8, LoopKind.SERIAL, FIRST), [FIRST], []),
    (Alloc(BUFFER, FIRST), [FIRST], []),
    (Store(BUFFER, (ROW, COLUMN), X), [], [ROW, COLUMN, X]),
    (If(TRUE, FIRST), [FIRST], [TRUE]),
    (If(TRUE, FIRST, SECOND), [FIRST, SECOND], [TRUE]),
    (While(TRUE, FIRST), [FIRST], [TRUE]),
    (Prefetch(BUFFER, (ROW, DEPTH)), [], [ROW, DEPTH]),
    (
        Intrinsic("dot", (Tile(BUFFER, (ROW, COLUMN)), Tile(BUFFER, (DEPTH,)))),
        [],
        [ROW, COLUMN, DEPTH],
    ),
    (Barrier(MemoryScope.WORKGROUP), [], []),
]


def _ids(nodes):
    return list(map(id, nodes))


def test_the_tables_here_hold_every_class_of_both_grammars():
    assert {type(node) for node, *_ in EXPRESSIONS} == set(typing.get_args(Expr))
    assert {type(node) for node, *_ in STATEMENTS} == set(typing.get_args(Stmt))


@pytest.mark.parametrize(("node", "inside", "rest"), EXPRESSIONS)
def test_an_expression_is_its_operands_and_its_attributes(node, inside, rest):
    assert _ids(operands(node)) == _ids(inside)
    assert attributes(node) == rest
    assert map_operands(node, lambda part: part) is node
    changed = map_operands(node, lambda part: DEPTH)
    assert operands(changed) == (DEPTH,) * len(inside)
    assert attributes(changed) == rest


@pytest.mark.parametrize(("node", "statements", "expressions"), STATEMENTS)
def test_a_statement_has_statements_and_expressions_below_it(node, statements, expressions):
    assert _ids(below(node)) == _ids(statements)
    assert _ids(operands(node)) == _ids(expressions)
    assert map_children(node, lambda part: part) is node
    assert map_operands(node, lambda part: part) is node
    changed = map_operands(map_children(node, lambda part: SECOND), lambda part: DEPTH)
    assert below(changed) == (SECOND,) * len(statements)
    assert operands(changed) == (DEPTH,) * len(expressions)
    assert type(changed) is type(node)


@settings(max_examples=30)
@given(functions())
def test_what_the_derived_functions_reach_is_what_lies_in_the_fields(function):
    classes = typing.get_args(Stmt)
    everything = list(walk(function.body))
    statements = [node for node in everything if isinstance(node, classes)]
    assert _ids(walk_stmts(function.body)) == _ids(statements)
    reached = [part for stmt in statements for part in operands(stmt)]
    for part in reached:  # The loop also visits what it appends.
        reached += operands(part)
    expressions = [node for node in everything if isinstance(node, typing.get_args(Expr))]
    assert sorted(_ids(reached)) == sorted(_ids(expressions))


def test_a_field_that_holds_nodes_in_a_form_of_its_own_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Pair:
        both: "tuple[Stmt, Stmt]"

    for table in parts("Stmt"), mapper("Stmt"):
        with pytest.raises(TypeError, match=r"Pair\.both: tuple\[Stmt, Stmt\] is not traversed"):
            table[Pair]
    assert parts("Expr")[Pair](Pair((FIRST, SECOND))) == ()
