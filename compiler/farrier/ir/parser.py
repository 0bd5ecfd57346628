"""Parse the text that `farrier.ir.printer` writes, by way of Python's own parser.

`parse_ir(print_ir(x), constants) == x`, origins included. No code in the text is executed: only the
syntax tree is read. Every name must be declared before it is used; the verifier, not the parser,
checks whether the types fit the operators.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from farrier.errors import UsageError
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.ir.tensor import TensorProgram
from farrier.ir.text.functions import FunctionReader
from farrier.ir.text.graphs import GraphReader
from farrier.ir.text.programs import ProgramReader
from farrier.ir.text.syntax import Malformed
from farrier.ir.text.types import read_dims

if TYPE_CHECKING:
    import numpy.typing as npt


class ParseError(UsageError):
    """An error: the text is not IR. `line` and `column` count from one."""

    def __init__(
        self, message: str, line: int, column: int, source: str = "", *, hint: str = ""
    ) -> None:
        place = f"line {line}, column {column}: {message}"
        super().__init__(f"{place}\n    {source.strip()}" if source else place, hint=hint)
        self.line = line
        self.column = column


def parse_ir(
    text: str, constants: Mapping[str, npt.NDArray[Any]] | None = None
) -> Graph | TensorProgram | Function:
    """Return the graph, program or function that `text` defines below `@graph`, `@program` or
    `@function`.

    `constants` holds the arrays to which the text refers by sha256 (`Constant.digest`). Raises
    ParseError.
    """
    try:
        definition = _only_definition(ast.parse(text))
        (decorator,) = definition.decorator_list
        kind = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        dims, sizes, choices = read_dims(decorator)
        if kind == "function":
            return FunctionReader(dims, sizes, choices).function(definition)
        if sizes or choices:
            raise Malformed(decorator, "expected dim(least, greatest, typical)")
        if kind == "graph":
            return GraphReader(constants or {}, dims).graph(definition, {})
        if kind == "program":
            return ProgramReader(dims).program(definition)
        raise Malformed(definition.decorator_list[0], f"unknown kind of IR @{kind}")
    except SyntaxError as error:
        hint = ""
        line, column = error.lineno or 1, error.offset or 1
        message = error.msg
    except ValueError as error:  # a null byte
        line, column, message, hint = 1, 1, str(error), ""
    except (RecursionError, MemoryError):
        line, column, message, hint = 1, 1, "the text nests too deeply", ""
    except Malformed as error:
        line, column = error.node.lineno, error.node.col_offset + 1
        message, hint = str(error), error.hint
    lines = text.splitlines()
    source = lines[line - 1] if line <= len(lines) else ""
    raise ParseError(message, line, column, source, hint=hint)


def _only_definition(module: ast.Module) -> ast.FunctionDef:
    match module.body:
        case [ast.FunctionDef(decorator_list=[_]) as definition]:
            return definition
        case [first, *_]:
            raise Malformed(first, "expected one definition under @graph, @program or @function")
        case _:
            raise SyntaxError("the text is empty")
