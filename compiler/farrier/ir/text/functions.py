"""Read loop functions from a syntax tree."""

from __future__ import annotations

import ast

from farrier.ir.dim import Symbol, as_extent, symbols
from farrier.ir.expr import MemoryScope
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    NamedSize,
    Prefetch,
    Stmt,
    Store,
    Tile,
    While,
)
from farrier.ir.text.expressions import ExprReader
from farrier.ir.text.extents import Dims, read_extent
from farrier.ir.text.syntax import Malformed, read_arguments, read_integer
from farrier.ir.text.types import read_buffer

_SCOPES = frozenset(scope.value for scope in MemoryScope)
_KINDS = frozenset(kind.value for kind in LoopKind)


class FunctionReader(ExprReader):
    """A reader of loop functions over `dims`, whose bodies may also refer to `sizes` and
    `choices`."""

    def __init__(
        self, dims: Dims, sizes: tuple[NamedSize, ...], choices: tuple[Symbol, ...]
    ) -> None:
        others = (*(size.symbol for size in sizes), *choices)
        super().__init__({**dims, **{symbol.name: as_extent(symbol) for symbol in others}})
        self._symbols = tuple(symbols(dims.values()))
        self._sizes = sizes
        self._choices = choices

    def function(self, definition: ast.FunctionDef) -> Function:
        params = tuple(
            read_buffer(name, node, self.dims) for name, node in read_arguments(definition)
        )
        self.buffers |= {buffer.name: buffer for buffer in params}
        body = self._suite(definition.body)
        return Function(definition.name, params, body, self._symbols, self._sizes, self._choices)

    def _suite(self, body: list[ast.stmt]) -> Stmt:
        match body:
            case [ast.Pass()]:
                return Block(())
            case [only]:
                return self._statement(only)
        return Block(tuple(map(self._statement, body)))

    def _statement(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.For(
                target=ast.Name(id=var),
                iter=ast.Call(func=ast.Name(id=kind), args=[extent], keywords=[]),
                body=body,
            ) if kind in _KINDS:
                return For(var, read_extent(extent, self.dims), LoopKind(kind), self._suite(body))
            case ast.With(items=[item], body=body):
                return self._with(item, body)
            case ast.Assign(targets=[target], value=value):
                return Store(*self.element(target), self.expr(value))
            case ast.If(test=test, body=then, orelse=orelse):
                otherwise = self._suite(orelse) if orelse else None
                return If(self.expr(test), self._suite(then), otherwise)
            case ast.While(test=test, body=body, orelse=[]):
                return While(self.expr(test), self._suite(body))
            case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args) as call):
                return self._call_statement(call, name, args)
        raise Malformed(node, "expected a loop, with, if, while, store, prefetch or intrinsic")

    def _with(self, item: ast.withitem, body: list[ast.stmt]) -> Stmt:
        match item.context_expr, item.optional_vars:
            case ast.Call(func=ast.Name(id="alloc"), args=[type_node]), ast.Name(id=name):
                buffer = read_buffer(name, type_node, self.dims)
                hidden = self.buffers.get(name)
                self.buffers[name] = buffer
                statement = Alloc(buffer, self._suite(body))
                del self.buffers[name]
                if hidden is not None:
                    self.buffers[name] = hidden
                return statement
            case ast.Call(func=ast.Name(id="block"), args=[]), None:
                items = [] if isinstance(body[0], ast.Pass) else body
                return Block(tuple(map(self._statement, items)))
        raise Malformed(item.context_expr, "expected `with alloc(…) as name` or `with block()`")

    def _tile(self, node: ast.expr) -> Tile:
        match node:
            case ast.Call(func=ast.Name(id="tile"), args=[element, *axes], keywords=[]) if axes:
                return Tile(*self.element(element), tuple(map(read_integer, axes)))
            case ast.Call(
                func=ast.Name(id="tile"),
                args=[element, *axes],
                keywords=[ast.keyword(arg="steps", value=ast.Tuple(elts=steps))],
            ) if len(axes) == len(steps):
                along = tuple(map(read_integer, axes)), tuple(map(read_integer, steps))
                return Tile(*self.element(element), *along)
        return Tile(*self.element(node))

    def _call_statement(self, call: ast.Call, name: str, args: list[ast.expr]) -> Stmt:
        match name, args, call.keywords:
            case "prefetch", [element], [ast.keyword(arg="level", value=level)]:
                return Prefetch(*self.element(element), read_integer(level))
            case "intrinsic", [ast.Constant(value=str(intrinsic)), *tiles], []:
                return Intrinsic(intrinsic, tuple(map(self._tile, tiles)))
            case (
                "intrinsic",
                [ast.Constant(value=str(intrinsic)), *tiles],
                [ast.keyword(arg="late", value=ast.Constant(value=True))],
            ):
                return Intrinsic(intrinsic, tuple(map(self._tile, tiles)), True)
            case "barrier", [ast.Name(id=scope)], [
                *waits,
                ast.keyword(arg="publishes", value=ast.Constant(value=True)),
            ] if scope in _SCOPES and len(waits) <= 1:
                return Barrier(MemoryScope(scope), self._copies(call, waits), True)
            case "barrier", [ast.Name(id=scope)], [*waits] if scope in _SCOPES and len(waits) <= 1:
                return Barrier(MemoryScope(scope), self._copies(call, waits))
        raise Malformed(
            call, f"expected prefetch(…, level=…), intrinsic(…) or barrier(…), not {name}"
        )

    def _copies(self, call: ast.Call, waits: list[ast.keyword]) -> int | None:
        if not waits:
            return None
        if waits[0].arg != "copies":
            raise Malformed(call, "expected barrier(…, copies=…, publishes=True)")
        return read_integer(waits[0].value)
