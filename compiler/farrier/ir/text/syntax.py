"""Readers of small pieces of Python's syntax tree, which raise `Malformed` with the faulty node."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


class Malformed(Exception):
    """An error with a message, the faulty syntax node, and a hint how to correct it, if there is
    one."""

    def __init__(self, node: Any, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.hint = hint


def split(node: ast.expr, operator: type[ast.operator]) -> tuple[ast.expr, ast.expr | None]:
    """Return the operands of `left operator right`, or (node, None) for any other expression."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operator):
        return node.left, node.right
    return node, None


def read_name(node: ast.AST) -> str:
    if not isinstance(node, ast.Name):
        raise Malformed(node, "expected a name")
    return node.id


def read_names(node: ast.AST) -> list[str]:
    """Return the names in a syntax node of the form `a`, `a, b` or `()`."""
    return (
        [read_name(item) for item in node.elts]
        if isinstance(node, ast.Tuple)
        else [read_name(node)]
    )


def read_integer(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise Malformed(node, "expected an integer")


def read_literal(node: ast.AST) -> Any:
    """Return the value of a literal: a number (`inf` and `nan` included), a string, or a tuple or
    list of these."""
    match node:
        case ast.Constant(value=(bool() | int() | float() | str()) as value):
            return value
        case ast.Name(id="inf" | "nan"):
            return float(node.id)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = read_literal(operand)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(read_literal(item) for item in items)
    raise Malformed(node, "expected a number, a string, or a tuple of them")


def read_arguments(definition: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Return the parameters of a definition, each as name and annotation."""
    pairs = []
    for argument in definition.args.args:
        if argument.annotation is None:
            raise Malformed(argument, f"{argument.arg} has no type")
        pairs.append((argument.arg, argument.annotation))
    return pairs


def read_returned(definition: ast.FunctionDef) -> tuple[list[ast.stmt], list[ast.Name]]:
    """Return the statements of a definition before its final `return`, and the names in that
    `return`."""
    *body, last = definition.body
    if not isinstance(last, ast.Return):
        raise Malformed(last, f"{definition.name} does not end in return")
    if last.value is None:
        return body, []
    items = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    for item in items:
        read_name(item)
    return body, items  # type: ignore[return-value]


def look_up(scope: Mapping[str, Any], node: ast.AST) -> Any:
    name = read_name(node)
    if name not in scope:
        raise Malformed(node, f"{name} is not defined")
    return scope[name]
