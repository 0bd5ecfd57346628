"""The record of a schedule as data: its primitives with their arguments, in order.

    split("relu_x", 7, "relu_xo", "relu_xi")
    reorder(("relu_n", "relu_xo", "relu_xi"))
    transform_layout("w", Layout(((0, 32, 0), (1, 1, 0), (0, 1, 32))))

A line holds one step, in Python's syntax. A trace does not refer to the loop nest on which it was
recorded, and can be replayed on any nest that has the names it uses.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import Any, TypeAlias

from farrier.errors import CompilerError
from farrier.ir.types import Layout, PhysicalDim

Argument: TypeAlias = int | str | tuple[str, ...] | tuple[int, ...] | Layout


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One call of a primitive: its name, and its arguments after the function."""

    primitive: str
    args: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.primitive}({', '.join(map(_print, self.args))})"


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """A sequence of steps, in the order in which they are applied."""

    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return "".join(f"{step}\n" for step in self.steps)

    def then(self, step: Step) -> Trace:
        """Return the trace extended by `step`."""
        return Trace((*self.steps, step))

    @classmethod
    def parse(cls, text: str) -> Trace:
        """Parse the text that `str` returns for a trace; raises CompilerError for any other
        text."""
        try:
            lines = ast.parse(text).body
            return cls(tuple(_step(line) for line in lines))
        except (SyntaxError, ValueError, TypeError) as error:
            raise CompilerError(f"not a schedule trace: {error}") from error


def _print(argument: Argument) -> str:
    if isinstance(argument, Layout):
        dims = tuple((d.axis, d.div, d.mod) for d in argument.dims)
        halo = f", {argument.halo!r}" if argument.halo else ""
        shared = f", per_byte={argument.per_byte}" if argument.per_byte > 1 else ""
        return f"Layout({dims!r}{halo}{shared})"
    if isinstance(argument, str):
        return f'"{argument}"'
    if isinstance(argument, tuple):
        return f"({', '.join(map(_print, argument))}{',' if len(argument) == 1 else ''})"
    return repr(argument)


def _step(line: ast.stmt) -> Step:
    match line:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=[])):
            return Step(name, tuple(map(_argument, args)))
    raise ValueError(f"line {line.lineno} is not a step")


def _argument(node: ast.expr) -> Argument:
    match node:
        case ast.Call(func=ast.Name(id="Layout"), args=[dims, *halo], keywords=keywords):
            parts = tuple(PhysicalDim(*part) for part in ast.literal_eval(dims))
            fields = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
            return Layout(parts, *(ast.literal_eval(h) for h in halo), **fields)
    value: Any = ast.literal_eval(node)
    if isinstance(value, bool) or not isinstance(value, int | str | tuple):
        raise ValueError(f"{value!r} is not an argument of a primitive")
    return value
