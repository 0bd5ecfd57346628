"""Parse MLIR's generic form.

    %2 = "stablehlo.add"(%0, %1) <{…}> ({ ^bb0(…): … }) {…} : (tensor<4xf32>, …) -> … loc(#loc3)

All operations have the same syntax in this form, so the parser knows no dialect. Weights are
strings of hexadecimal digits, which are located by their quotes and not scanned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from farrier.errors import InvalidModelError
from farrier.frontends.stablehlo.dense import dense_of
from farrier.frontends.stablehlo.module import (
    Block,
    Dense,
    Function,
    FunctionType,
    Module,
    Operation,
    OtherType,
    Raw,
    Symbol,
    TensorType,
    Type,
)

HINT = "write the file again with farrier convert, where jax is installed"
_MOST_LEVELS = 64  # Regions and lists within each other.
_MOST_ALIASES = 256  # Of one location: calls of Python that lie within each other.
_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<value>%[\w$.-]+(?:\#\d+)?)"
    r'|(?P<symbol>@(?:[\w$.-]+|"(?:[^"\\]|\\.)*"))'
    r"|(?P<block>\^[\w$.-]+)"
    r"|(?P<arrow>->)"
    r"|(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))"
    r"|(?P<sharp>[#!][\w$.]*)"
    r"|(?P<word>[A-Za-z_][\w$.]*)"
    r"|(?P<mark>[()\[\]{}<>,=:?*+-])"
)
_ALIAS = re.compile(r"^(#loc\d*) = loc\(", re.MULTILINE)
_LINE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+)')
_CALL = re.compile(rf"{_LINE.pattern}|(#loc\d*)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")


def read_module(text: str) -> Module:
    """Parse the text of a module. Raises InvalidModelError."""
    try:
        return _Reader(text).module()
    except RecursionError:
        raise InvalidModelError("the StableHLO module is nested too deeply", hint=HINT) from None


class _Reader:
    """A recursive-descent parser with its position in the text."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._level = text, 0, 0
        self._locations = {
            match[1]: text[match.end() : self._end_of_line(match.end())]
            for match in _ALIAS.finditer(text)
        }

    def module(self) -> Module:
        """Parse the module."""
        self._aliases()
        if self._peek() != '"builtin.module"':
            raise InvalidModelError(
                "the StableHLO module is not in MLIR's generic form, which begins with "
                '"builtin.module"',
                hint=HINT,
            )
        outer = self._operation()
        functions = {
            function.name: function
            for region in outer.regions
            for operation in region.operations
            if operation.name == "func.func"
            for function in (self._function(operation),)
        }
        if "main" not in functions:
            raise InvalidModelError("the StableHLO module has no function main", hint=HINT)
        return Module(functions)

    def _function(self, operation: Operation) -> Function:
        attrs = operation.attrs
        name, kind = attrs.get("sym_name"), attrs.get("function_type")
        if not isinstance(name, str) or not isinstance(kind, FunctionType):
            raise self._error("a function without a name or type")
        if not operation.regions:
            raise InvalidModelError(f"the function {name} has no body", hint=HINT)
        return Function(
            name,
            operation.regions[0],
            kind.results,
            tuple(attrs.get("arg_attrs") or ()),
            tuple(attrs.get("res_attrs") or ()),
        )

    # Operations ----------------------------------------------------------------------------------

    def _operation(self) -> Operation:
        results: list[str] = []
        if self._peek().startswith("%"):
            results = list(self._results())
            self._expect("=")
        name = self._string()
        self._expect("(")
        operands = tuple(self._listed(")", self._value))
        attrs: dict[str, Any] = {}
        if self._skip("<"):
            attrs |= self._dictionary()
            self._expect(">")
        regions: tuple[Block, ...] = ()
        if self._peek() == "(":
            self._expect("(")
            regions = tuple(self._listed(")", self._region))
        if self._peek() == "{":
            attrs |= self._dictionary()
        self._expect(":")
        kind = self._type()
        if not isinstance(kind, FunctionType):
            raise self._error(f"the type of {name}")
        if len(kind.results) != len(results) or len(kind.inputs) != len(operands):
            raise self._error(f"{name} with {len(results)} results and {len(operands)} operands")
        line = self._location()[1]
        return Operation(name, operands, tuple(results), attrs, regions, kind, line)

    def _results(self) -> Iterator[str]:
        while True:
            name = self._value()
            if self._skip(":"):
                yield from (f"{name}#{place}" for place in range(self._count()))
            else:
                yield name
            if not self._skip(","):
                return

    def _count(self) -> int:
        count = self._take("number")
        if not count.isdigit() or len(count) > 4:
            raise self._error("a number of results")
        return int(count)

    def _region(self) -> Block:
        self._expect("{")
        arguments: list[tuple[str, Type, str]] = []
        if self._peek().startswith("^"):
            self._take("block")
            if self._skip("("):
                arguments = list(self._listed(")", self._argument))
            self._expect(":")
        operations = []
        with _Deeper(self):
            while not self._skip("}"):
                if self._peek().startswith("^"):
                    raise self._error("a region of several blocks")
                operations.append(self._operation())
        return Block(tuple(arguments), tuple(operations))

    def _argument(self) -> tuple[str, Type, str]:
        name = self._value()
        self._expect(":")
        kind = self._type()
        return name, kind, self._location()[0]

    # Locations -----------------------------------------------------------------------------------

    def _aliases(self) -> None:
        """Skip the definitions of locations at the head of the text."""
        while self._peek().startswith("#"):
            self._at = self._end_of_line(self._at) + 1

    def _end_of_line(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end

    def _location(self) -> tuple[str, str]:
        """Skip a location, and return the name in it and the line of the user's Python code."""
        if self._peek() != "loc":
            return "", ""
        self._take("word")
        start = self._at
        self._expect("(")
        depth = 1
        while depth:
            token = self._next()
            depth += (token == "(") - (token == ")")
        text = self._text[start : self._at]
        name = _QUOTED.search(text)
        return _unescaped(name[1]) if name and not _LINE.search(text) else "", self._line(text)

    def _line(self, text: str) -> str:
        """Return the `file:line` in a location that is most useful to the user: the innermost one
        outside of installed packages or, if all are inside, the innermost one."""
        lines = list(self._calls(text, set()))
        own = (line for line in lines if "site-packages" not in line)
        return next(own, lines[0] if lines else "").rpartition("/")[2]

    def _calls(self, text: str, seen: set[str]) -> Iterator[str]:
        """Yield the `file:line` entries of a location, the innermost call first. Aliases in `seen`
        are skipped, because nested aliases can expand to exponentially many entries."""
        if len(seen) > _MOST_ALIASES:
            return
        for match in _CALL.finditer(text):
            alias = match[3]
            if not alias:
                yield f"{_unescaped(match[1])}:{match[2]}"
            elif alias not in seen:
                seen.add(alias)
                yield from self._calls(self._locations.get(alias, ""), seen)

    # Attributes ----------------------------------------------------------------------------------

    def _dictionary(self) -> dict[str, Any]:
        self._expect("{")
        return dict(self._listed("}", self._entry))

    def _entry(self) -> tuple[str, Any]:
        key = self._next()
        if key.startswith('"'):
            key = _unescaped(key[1:-1])
        return key, self._attribute() if self._skip("=") else True

    def _attribute(self) -> Any:
        with _Deeper(self):
            token = self._peek()
            if token == "[":
                self._expect("[")
                return list(self._listed("]", self._attribute))
            if token == "{":
                return self._dictionary()
            if token.startswith('"'):
                return self._string()
            if token.startswith("@"):
                return self._symbol()
            if token.startswith("#"):
                return self._raw()
            if re.match(r"-?\d", token):
                return self._number()
            return self._word()

    def _symbol(self) -> Symbol:
        name = self._take("symbol")[1:]
        return Symbol(_unescaped(name[1:-1]) if name.startswith('"') else name)

    def _raw(self) -> Raw:
        name = self._take("sharp")[1:]
        if self._text[self._at : self._at + 1] != "<":
            return Raw(name, "")
        start = self._at + 1
        self._balanced()
        text = self._text[start : self._at - 1]
        if "." not in name:  # `#stablehlo<comparison_direction GT>`
            kind, _, text = text.partition(" ")
            name = f"{name}.{kind}"
        return Raw(name, text.strip())

    def _balanced(self) -> None:
        """Skip a text in balanced angle brackets; the `>` of an arrow does not count."""
        depth = 0
        while True:
            token = self._next()
            depth += (token == "<") - (token == ">")
            if not depth:
                return

    def _number(self) -> int | float:
        token = self._take("number")
        if self._skip(":"):
            self._type()
        try:
            if re.fullmatch(r"-?\d+", token):
                return int(token)
            return float(int(token, 16)) if "x" in token else float(token)
        except (ValueError, OverflowError):  # Of thousands of digits.
            raise self._error("a shorter number") from None

    def _word(self) -> Any:
        word = self._peek()
        if word in ("true", "false", "unit"):
            self._take("word")
            return word != "false"
        if word == "dense":
            self._take("word")
            return self._dense()
        if word == "array":
            self._take("word")
            self._expect("<")
            self._type()
            return list(self._listed(">", self._attribute)) if self._skip(":") else self._closed()
        return self._type()

    def _closed(self) -> list[Any]:
        self._expect(">")
        return []

    def _dense(self) -> Dense:
        self._expect("<")
        start = self._at
        if self._text[start : start + 1] == '"':
            end = self._text.find('"', start + 1) + 1
        else:
            end = self._text.find(">", start)
        if end <= 0:
            raise self._error("a constant")
        content = self._text[start:end]
        self._at = end
        self._expect(">")
        self._expect(":")
        kind = self._type()
        if not isinstance(kind, TensorType):
            raise self._error("the type of a constant")
        return dense_of(content, kind)

    # Types ---------------------------------------------------------------------------------------

    def _type(self) -> Type:
        with _Deeper(self):
            if self._skip("("):
                inputs = tuple(self._listed(")", self._type))
                self._expect("->")
                if self._skip("("):
                    return FunctionType(inputs, tuple(self._listed(")", self._type)))
                return FunctionType(inputs, (self._type(),))
            start = self._at
            word = self._next()
            if self._text[self._at : self._at + 1] == "<":
                start = self._at + 1
                self._balanced()
                inner = self._text[start : self._at - 1]
                return _tensor(inner) if word == "tensor" else OtherType(f"{word}<{inner}>")
            if not re.match(r"[A-Za-z!]", word):
                self._at = start
                raise self._error("a type")
            return OtherType(word)

    # Tokens --------------------------------------------------------------------------------------

    def _listed(self, end: str, item: Any) -> Iterator[Any]:
        """Yield comma-separated items, each parsed by `item`, up to the token `end`, which is
        skipped."""
        if self._skip(end):
            return
        while True:
            yield item()
            if self._skip(end):
                return
            self._expect(",")

    def _match(self) -> re.Match[str]:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        token = _TOKEN.match(self._text, self._at)
        if token is None:
            raise self._error("a token")
        return token

    def _peek(self) -> str:
        """Return the next token without consuming it; "" at the end of the text."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return "" if self._at == len(self._text) else self._match()[0]

    def _next(self) -> str:
        token = self._match()
        self._at = token.end()
        return token[0]

    def _take(self, kind: str) -> str:
        token = self._match()
        if token.lastgroup != kind:
            raise self._error(f"a {kind}")
        self._at = token.end()
        return token[0]

    def _value(self) -> str:
        return self._take("value")

    def _string(self) -> str:
        return _unescaped(self._take("string")[1:-1])

    def _skip(self, mark: str) -> bool:
        if self._peek() != mark:
            return False
        self._next()
        return True

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise self._error(repr(mark))

    def _error(self, wanted: str) -> InvalidModelError:
        line = self._text.count("\n", 0, self._at) + 1
        there = self._text[self._at : self._at + 40].split("\n")[0]
        return InvalidModelError(
            f"line {line} of the StableHLO module should have {wanted}, and has {there!r}",
            hint=HINT,
        )


class _Deeper:
    """A context in which the nesting depth is one greater, with a limit."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        self._reader._level += 1
        if self._reader._level > _MOST_LEVELS:
            raise InvalidModelError("the StableHLO module is nested too deeply", hint=HINT)

    def __exit__(self, *error: object) -> None:
        self._reader._level -= 1


def _tensor(inner: str) -> Type:
    """Parse the text within `tensor<…>`: extents and an element type, separated by x."""
    match = re.fullmatch(r"((?:(?:\d{1,18}|\?)x)*)(\w+(?:<\w+>)?)\s*(?:,.*)?", inner, re.DOTALL)
    if match is None:
        return OtherType(f"tensor<{inner}>")
    sizes = [None if size == "?" else int(size) for size in match[1].split("x") if size]
    return TensorType(match[2], tuple(sizes))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else escape[2], text)
