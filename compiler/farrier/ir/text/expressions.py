"""Read scalar expressions from a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Hashable

from farrier.ir.expr import (
    BYTES,
    Axis,
    Binary,
    BinaryOp,
    Buffer,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceOp,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
    extent_of,
    index,
    sub,
)
from farrier.ir.operands import attributes, operands
from farrier.ir.text.extents import Dims, read_extent
from farrier.ir.text.syntax import Malformed, look_up, read_literal, read_names
from farrier.ir.text.types import read_dtype
from farrier.ir.types import DType

_BINARY = {
    ast.Add: BinaryOp.ADD,
    ast.Sub: BinaryOp.SUB,
    ast.Mult: BinaryOp.MUL,
    ast.Div: BinaryOp.DIV,
    ast.FloorDiv: BinaryOp.DIV,
    ast.Mod: BinaryOp.MOD,
    ast.And: BinaryOp.AND,
    ast.Or: BinaryOp.OR,
    ast.Lt: BinaryOp.LT,
    ast.LtE: BinaryOp.LE,
    ast.Eq: BinaryOp.EQ,
    ast.NotEq: BinaryOp.NE,
}  # fmt: skip


_UNARY = frozenset(op.value for op in UnaryOp)
_BINARY_CALLS = frozenset(op.value for op in BinaryOp)
_REDUCTIONS = frozenset(op.value for op in ReduceOp)
_DTYPES = frozenset(dtype.value for dtype in DType)


class ExprReader:
    """A reader of expressions over the buffers in scope; a bare name is a loop variable or one of
    the symbols `dims`. Equal expressions become one node, so that later code visits them once."""

    def __init__(self, dims: Dims) -> None:
        self.dims = dims
        self.buffers: dict[str, Buffer] = {}
        self._made: dict[Hashable, Expr] = {}

    def expr(self, node: ast.AST) -> Expr:
        return self._one(self._expr(node))

    def _one(self, expr: Expr) -> Expr:
        """Return the node that stands for all expressions equal to `expr`, whose operands must be
        such nodes."""
        return self._made.setdefault(_content(expr), expr)

    def _expr(self, node: ast.AST) -> Expr:
        match node:
            case ast.Name(id="inf" | "nan"):
                return Const(float(node.id), DType.F32)
            case ast.Name(id=name):
                return index(self.dims[name]) if name in self.dims else Var(name)
            case ast.Constant(value=bool(value)):
                return Const(value, DType.BOOL)
            case ast.Constant(value=int(value)):
                return Const(value, DType.I64)
            case ast.Constant(value=float(value)):
                return Const(value, DType.F32)
            case ast.Subscript():
                return Load(*self.element(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if isinstance(operand, ast.Constant) or _is_non_finite(operand):
                    return _typed_const(read_literal(node))
                inner = self.expr(operand)
                return sub(0, inner) if isinstance(inner, Size) else Unary(UnaryOp.NEG, inner)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Unary(UnaryOp.NOT, self.expr(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._binary(node, _BINARY[type(op)], left, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
                return Binary(_BINARY[type(op)], self.expr(left), self.expr(right))
            case ast.BoolOp(op=op, values=[first, *rest]):
                result = self.expr(first)
                for operand in rest:
                    result = self._one(Binary(_BINARY[type(op)], result, self.expr(operand)))
                return result
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return Select(self.expr(test), self.expr(then), self.expr(otherwise))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(node, name, args)
        raise Malformed(node, "expected an expression")

    def element(self, node: ast.AST) -> tuple[Buffer, tuple[Expr, ...]]:
        """Read `buffer[i, j]` as the buffer and its indices."""
        if not isinstance(node, ast.Subscript):
            raise Malformed(node, "expected buffer[…]")
        buffer = look_up(self.buffers, node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return buffer, tuple(map(self.expr, items))

    def _call(self, node: ast.AST, name: str, args: list[ast.expr]) -> Expr:
        match args:
            case [ast.GeneratorExp(elt=body, generators=[generator])] if name in _REDUCTIONS:
                axes = read_axes(generator.target, generator.iter, self.dims)
                return Reduce(ReduceOp(name), axes, self.expr(body))
            case [ast.Name(id=dtype), operand] if name == "cast":
                return Cast(read_dtype(dtype, node), self.expr(operand))
            case [ast.Name(id=dtype), ast.Constant(value=str(entries)), operand] if (
                name == "byte_table"
            ):
                table = _entries(entries, node), read_dtype(dtype, node)
                return ByteTable(*table, self.expr(operand))
            case [value] if name in _DTYPES:
                return Const(read_literal(value), DType(name))
            case [operand] if name in _UNARY:
                return Unary(UnaryOp(name), self.expr(operand))
            case [left, right] if name in _BINARY_CALLS:
                return self._binary(node, BinaryOp(name), left, right)
        raise Malformed(node, f"{name} of {len(args)} is not an expression")

    def _binary(self, node: ast.AST, op: BinaryOp, left: ast.expr, right: ast.expr) -> Expr:
        """Build a binary expression. If both operands are sizes and `op` is arithmetic, the result
        is a single size."""
        operands = self.expr(left), self.expr(right)
        if any(isinstance(x, Size) for x in operands) and None not in map(extent_of, operands):
            return index(read_extent(node, self.dims))
        return Binary(op, *operands)


def _content(expr: Expr) -> Hashable:
    """Return a key that is equal for two expressions exactly if they are equal, assuming that their
    equal operands are the same objects."""
    parts = operands(expr)
    return (type(expr), *attributes(expr), *map(id, parts)) if parts else expr


def _entries(text: str, node: ast.AST) -> bytes:
    """Read the 256 bytes of a ByteTable, two hexadecimal digits each."""
    try:
        entries = bytes.fromhex(text)
    except ValueError:
        entries = b""
    if len(entries) != BYTES:
        raise Malformed(node, f"expected {BYTES} bytes of two hexadecimal digits")
    return entries


def _is_non_finite(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("inf", "nan")


def _typed_const(value: int | float) -> Const:
    return Const(value, DType.F32 if isinstance(value, float) else DType.I64)


def read_axes(target: ast.AST, extents: ast.AST, dims: Dims) -> tuple[Axis, ...]:
    """Read `i, j in axes(2, 3)` as two axes."""
    match extents:
        case ast.Call(func=ast.Name(id="axes"), args=args, keywords=[]):
            names = read_names(target)
            if len(names) == len(args):
                pairs = zip(names, args, strict=True)
                return tuple(Axis(name, read_extent(extent, dims)) for name, extent in pairs)
    raise Malformed(extents, "expected axes(…) with one extent a name")
