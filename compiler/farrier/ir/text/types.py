"""Reads dtypes, tensor types, layouts and buffers."""

from __future__ import annotations

import ast

from farrier.ir.expr import Buffer, Scope
from farrier.ir.text.syntax import Malformed, read_integer, read_literal, split
from farrier.ir.types import Dim, DType, Layout, PhysicalDim, TensorType

_SCOPES = frozenset(scope.value for scope in Scope)


def read_type(node: ast.expr) -> TensorType:
    array, layout_node = split(node, ast.MatMult)
    layout = _layout(layout_node) if layout_node is not None else None
    match array:
        case ast.Subscript(value=ast.Name(id=name), slice=dims):
            items = dims.elts if isinstance(dims, ast.Tuple) else [dims]
            return TensorType(read_dtype(name, node), tuple(map(_dim, items)), layout)
    raise Malformed(node, "expected a type such as f32[1, 3]")


def read_dtype(name: str, place: ast.AST) -> DType:
    try:
        return DType(name)
    except ValueError:
        raise Malformed(place, f"no dtype is called {name}") from None


def _dim(node: ast.AST) -> Dim:
    match node:
        case ast.Name(id=symbol) | ast.Constant(value=str(symbol)):
            return symbol
    return read_integer(node)


def _layout(node: ast.AST) -> Layout:
    match node:
        case ast.Call(func=ast.Name(id="layout"), args=dims, keywords=[]):
            return Layout(tuple(map(_physical_dim, dims)))
        case ast.Call(
            func=ast.Name(id="layout"), args=dims, keywords=[ast.keyword(arg="halo", value=halo)]
        ):
            return Layout(tuple(map(_physical_dim, dims)), read_literal(halo))
    raise Malformed(node, "expected layout(…)")


def _physical_dim(node: ast.expr) -> PhysicalDim:
    node, mod = split(node, ast.Mod)
    node, div = split(node, ast.Div)
    return PhysicalDim(
        read_integer(node),
        read_integer(div) if div is not None else 1,
        read_integer(mod) if mod is not None else 0,
    )


def read_buffer(name: str, node: ast.expr) -> Buffer:
    scope = Scope.PARAM
    match node:
        case ast.Compare(left=type_node, ops=[ast.In()], comparators=[ast.Name(id=scope_name)]):
            if scope_name not in _SCOPES:
                raise Malformed(node, f"no scope is called {scope_name}")
            node, scope = type_node, Scope(scope_name)
    type = read_type(node)
    if not type.is_static:
        raise Malformed(node, "a buffer's dimensions are integers")
    return Buffer(name, type.dtype, type.static_shape, type.layout, scope)
