"""Read extents. They have a module of their own, because loading an artifact needs nothing else of
the parser.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

from farrier.ir.dim import Extent, maximum, minimum
from farrier.ir.text.syntax import Malformed, look_up, read_integer

Dims: TypeAlias = Mapping[str, Extent]  # The symbols that a text declares, by name.

_OPERATORS: Mapping[type, Callable[[Extent, Extent], Extent]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[[Extent, Extent], Extent]] = {"min": minimum, "max": maximum}


def parse_extent(text: str, dims: Dims) -> Extent:
    """Read `7` or `(n + 1) // 2` over the symbols `dims`. Raises ValueError for anything else."""
    try:
        return read_extent(ast.parse(text, mode="eval").body, dims)
    except (SyntaxError, Malformed, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not an extent: {error}") from error


def read_extent(node: ast.AST, dims: Dims) -> Extent:
    """Read an extent such as `7`, `n` or `(n + 1) // 2` over the symbols `dims`."""
    match node:
        case ast.Name():
            return look_up(dims, node)  # type: ignore[no-any-return]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -read_extent(operand, dims)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](read_extent(left, dims), read_extent(right, dims))
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if (
            name in _FUNCTIONS
        ):
            return _FUNCTIONS[name](read_extent(left, dims), read_extent(right, dims))
    return read_integer(node)
