"""The expressions directly within an expression or a statement: operands, indices, conditions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from farrier.ir.expr import Expr
from farrier.ir.loop import Stmt
from farrier.ir.walk import leaves, mapper, parts

N = TypeVar("N")

# For loops that visit the nodes of a nest by the thousand, where one more call counts.
OPERANDS = parts("Expr")
MAP_OPERANDS = mapper("Expr")
_LEAVES = leaves("Expr")


def operands(node: Expr | Stmt) -> tuple[Expr, ...]:
    """Return the expressions directly within `node`, in field order."""
    return OPERANDS[type(node)](node)


def map_operands(node: N, change: Callable[[Expr], Expr]) -> N:
    """Return `node` with `change` applied to each of its operands; `node` itself if none
    changes."""
    changed: N = MAP_OPERANDS[type(node)](node, change)
    return changed


def attributes(node: Expr) -> tuple[Any, ...]:
    """Return the fields of an expression that are not operands: operators, dtypes, buffers."""
    return _LEAVES[type(node)](node)
