"""Read dtypes, declarations of dims, tensor types, layouts and buffers from a syntax tree."""

from __future__ import annotations

import ast

from farrier.ir.dim import Extent, Symbol, dim
from farrier.ir.expr import Buffer, MemoryScope
from farrier.ir.loop import NamedSize
from farrier.ir.text.extents import Dims, read_extent
from farrier.ir.text.syntax import Malformed, read_integer, read_literal, split
from farrier.ir.types import DType, Layout, PhysicalDim, Swizzle, TensorType

_SCOPES = frozenset(scope.value for scope in MemoryScope)


def read_dims(
    decorator: ast.expr,
) -> tuple[dict[str, Extent], tuple[NamedSize, ...], tuple[Symbol, ...]]:
    """Read the symbols of `@function(n=dim(1, 8, 4), chunk=(n + 1) // 2, parts=choice(1, n, 1))`.

    Return the dims by name, each with the least, the greatest and the typical value, then the named
    sizes over them, and the choices.
    """
    dims: dict[str, Extent] = {}
    sizes: list[NamedSize] = []
    choices: list[Symbol] = []
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
        name = str(keyword.arg)
        match keyword.value:
            case ast.Call(func=ast.Name(id="dim"), args=[low, high, typical], keywords=[]):
                most = read_extent(high, dims)
                dims[name] = dim(name, read_integer(low), most, read_integer(typical))
            case ast.Call(func=ast.Name(id="choice"), args=[low, high, typical], keywords=[]):
                most = read_extent(high, dims)
                choices.append(Symbol(name, read_integer(low), most, read_integer(typical)))
            case _:
                sizes.append(NamedSize(name, read_extent(keyword.value, dims)))
    return dims, tuple(sizes), tuple(choices)


def read_type(node: ast.expr, dims: Dims) -> TensorType:
    array, layout_node = split(node, ast.MatMult)
    layout = _layout(layout_node) if layout_node is not None else None
    match array:
        case ast.Subscript(value=ast.Name(id=name), slice=extents):
            items = extents.elts if isinstance(extents, ast.Tuple) else [extents]
            shape = tuple(read_extent(item, dims) for item in items)
            return TensorType(read_dtype(name, node), shape, layout)
    raise Malformed(node, "expected a type such as f32[1, 3]")


def read_dtype(name: str, place: ast.AST) -> DType:
    try:
        return DType(name)
    except ValueError:
        raise Malformed(place, f"no dtype is called {name}") from None


def _layout(node: ast.AST) -> Layout:
    match node:
        case ast.Call(func=ast.Name(id="layout"), args=dims, keywords=keywords):
            fields = {str(keyword.arg): read_literal(keyword.value) for keyword in keywords}
            if fields.keys() <= {"halo", "per_byte", "swizzle"}:
                if "swizzle" in fields:
                    fields["swizzle"] = _swizzle(fields["swizzle"], node)
                return Layout(tuple(map(_physical_dim, dims)), **fields)
    raise Malformed(node, "expected layout(…)")


def _swizzle(numbers: object, place: ast.AST) -> Swizzle:
    if isinstance(numbers, tuple) and len(numbers) == 3 and all(type(n) is int for n in numbers):
        return Swizzle(*numbers)
    raise Malformed(place, "expected swizzle=(chunk, rows, count)")


def _physical_dim(node: ast.expr) -> PhysicalDim:
    node, mod = split(node, ast.Mod)
    node, div = split(node, ast.Div)
    return PhysicalDim(
        read_integer(node),
        read_integer(div) if div is not None else 1,
        read_integer(mod) if mod is not None else 0,
    )


def read_buffer(name: str, node: ast.expr, dims: Dims) -> Buffer:
    scope = MemoryScope.PARAM
    match node:
        case ast.Compare(left=type_node, ops=[ast.In()], comparators=[ast.Name(id=scope_name)]):
            if scope_name not in _SCOPES:
                raise Malformed(node, f"no scope is called {scope_name}")
            node, scope = type_node, MemoryScope(scope_name)
    type = read_type(node, dims)
    return Buffer(name, type.dtype, type.shape, type.layout, scope)
