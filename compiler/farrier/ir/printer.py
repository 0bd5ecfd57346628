"""IR as text: one notation for the three grammars, in the syntax of Python.

Python's own parser reads it back (`farrier.ir.parser`), so every node round-trips: names, types,
layouts, scopes, attributes, regions, origins. A constant of at most 16 elements is written out, a
larger one is named by the sha256 of its content. Symbols of dims are declared at the head: least,
greatest and typical value.

    @graph
    def mlp(x: f32[1, 4]):
        w: f32[4, 8] = constant("5e1c…")
        h: f32[1, 8] = MatMul(x, w, origin="fc1")
        def relu_kernel(a: f32[1, 8]):
            b: f32[1, 8] = Relu(a)
            return b
        y: f32[1, 8] = Fused[relu_kernel](h)
        return y

    @program(n=dim(1, 64, 16))
    def dense(x: f32[n, 4], w: f32[4, 8] in constant):
        y: f32[n, 8]
        for i, j in axes(n, 8):
            y[i, j] = sum(x[i, k] * w[k, j] for k in axes(4))
        return y

    @function
    def scale(x: f32[64], y: f32[64]):
        for i in parallel(4):
            with alloc(f32[16] in register) as t:
                for j in vectorized(16):
                    t[j] = x[i * 16 + j] * 2.0
                for j2 in vectorized(16):
                    y[i * 16 + j2] = t[j2]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, assert_never

from farrier.ir.dim import Symbol
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    ByteTable,
    Cast,
    Const,
    Expr,
    Load,
    MemoryScope,
    Reduce,
    Select,
    Size,
    Unary,
    UnaryOp,
    Var,
    dtype_of,
)
from farrier.ir.graph import Constant, Derived, Graph, Node, Value
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    NamedSize,
    Prefetch,
    Stmt,
    Store,
    Tile,
    While,
)
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout, PhysicalDim, TensorType

INLINE_ELEMENTS = 16
Named: TypeAlias = Callable[[Constant], str]
_INDENT = "    "


def print_ir(
    node: Graph | TensorProgram | Function | Node | Stmt | Expr, named: Named | None = None
) -> str:
    """Return the text of a node. `parse_ir` reads the text of a graph, program or function back as
    an equal object.

    `named` returns the name under which a large constant is printed; the default is its digest,
    which requires reading all large constants.
    """
    named = named or _digest
    match node:
        case Graph():
            lines: Iterable[str] = (f"@graph{_dims(node.dims)}", *_graph(node, "", named))
        case TensorProgram():
            lines = (f"@program{_dims(node.dims)}", *_program(node))
        case Function():
            lines = (f"@function{_dims(node.dims, node.sizes, node.choices)}", *_function(node))
        case Node():
            lines = _node(node, "", named)
        case (
            Block()
            | For()
            | Alloc()
            | Store()
            | If()
            | While()
            | Prefetch()
            | Intrinsic()
            | Barrier()
        ):
            lines = _suite(node, "")
        case (
            Const() | Var() | Size() | Load() | Unary() | Binary() | Select() | Cast()
            | ByteTable() | Reduce()
        ):  # fmt: skip
            return print_expr(node)
        case _:
            assert_never(node)
    return "\n".join(lines) + "\n"


# Types ------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def print_type(type: TensorType) -> str:
    """Return a type's text: `f32[1, 64, 56, 56] @ layout(0, 1 / 16, 2, 3, 1 % 16)`."""
    dims = ", ".join(map(str, type.shape)) or "()"
    text = f"{type.dtype.value}[{dims}]"
    return text if type.layout is None else f"{text} @ {print_layout(type.layout)}"


def print_layout(layout: Layout) -> str:
    """Return a layout's text: `layout(0, 1 / 16, 2, 3, 1 % 16, halo=((0, 0), (0, 0), (1, 1), (1,
    1)))`."""
    parts = [_physical_dim(dim) for dim in layout.dims]
    if layout.halo:
        parts.append(f"halo={layout.halo!r}")
    if layout.per_byte > 1:
        parts.append(f"per_byte={layout.per_byte}")
    if (swizzle := layout.swizzle) is not None:
        parts.append(f"swizzle=({swizzle.chunk}, {swizzle.rows}, {swizzle.count})")
    return f"layout({', '.join(parts)})"


def _dims(
    symbols: Iterable[Symbol],
    sizes: Iterable[NamedSize] = (),
    choices: Iterable[Symbol] = (),
) -> str:
    """Return the declarations in the decorator of a definition: `(n=dim(1, 8, 4), chunk=(n + 1) //
    2, parts=choice(1, 8, 1))`, or "" if there are none."""
    declared = [f"{s.name}=dim({s.low}, {s.high}, {s.typical})" for s in symbols]
    declared += [f"{size.name}={size.extent}" for size in sizes]
    declared += [f"{s.name}=choice({s.low}, {s.high}, {s.typical})" for s in choices]
    return f"({', '.join(declared)})" if declared else ""


def _physical_dim(dim: PhysicalDim) -> str:
    div = f" / {dim.div}" if dim.div != 1 else ""
    mod = f" % {dim.mod}" if dim.mod else ""
    return f"{dim.axis}{div}{mod}"


def _buffer(buffer: Buffer) -> str:
    scope = "" if buffer.scope is MemoryScope.PARAM else f" in {buffer.scope.value}"
    return f"{print_type(buffer.type)}{scope}"


# Graphs -----------------------------------------------------------------------------------------


def _digest(constant: Constant) -> str:
    return constant.digest


def _graph(graph: Graph, indent: str, named: Named) -> Iterator[str]:
    params = ", ".join(map(_typed, graph.inputs))
    yield f"{indent}def {graph.name}({params}):"
    inner = indent + _INDENT
    for constant in graph.constants:
        yield f"{inner}{_typed(constant.value)} = {_constant(constant, named)}"
    for node in graph.nodes:
        yield from _node(node, inner, named)
    yield f"{inner}return {', '.join(value.name for value in graph.outputs)}".rstrip()


def _typed(value: Value) -> str:
    return f"{value.name}: {print_type(value.type)}"


def is_written_out(constant: Constant) -> bool:
    """Check whether the text of a constant contains its elements, as it does for up to
    `INLINE_ELEMENTS` elements, and for dims. A NaN's payload has no literal, so constants with NaN
    are named instead."""
    data = constant.content
    if isinstance(data, Derived):
        return False
    return data.dtype == object or (data.size <= INLINE_ELEMENTS and not _has_nan(data))


def _constant(constant: Constant, named: Named) -> str:
    data = constant.content
    if isinstance(data, Derived) or not is_written_out(constant):
        return f'constant("{named(constant)}")'
    write = str if data.dtype == object else _literal
    if data.ndim == 0:
        return f"constant({write(data.item())})"
    return f"constant([{', '.join(map(write, data.ravel().tolist()))}])"


def _has_nan(data: Any) -> bool:
    return bool((data != data).any())


def _node(node: Node, indent: str, named: Named) -> Iterator[str]:
    for region in node.regions:
        yield from _graph(region, indent, named)
    arguments = [value.name if value is not None else "None" for value in node.inputs]
    arguments += [f"{name}={_literal(value)}" for name, value in node.attrs]
    if node.origin:
        arguments.append(f"origin={node.origin!r}")
    regions = f"[{', '.join(region.name for region in node.regions)}]" if node.regions else ""
    call = f"{node.op}{regions}({', '.join(arguments)})"
    if len(node.outputs) == 1:
        yield f"{indent}{_typed(node.outputs[0])} = {call}"
        return
    for value in node.outputs:
        yield f"{indent}{_typed(value)}"
    yield f"{indent}{', '.join(value.name for value in node.outputs)} = {call}"


def _literal(value: Any) -> str:
    """Return a number, string or tuple as a Python expression; infinities and NaN are written as
    names."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    # For floats that are not finite, repr writes `inf`, `-inf` and `nan`, which the parser reads.
    return repr(value)


# Programs ---------------------------------------------------------------------------------------


def _program(program: TensorProgram) -> Iterator[str]:
    yield f"def {program.name}({_params(program.inputs)}):"
    for stage in program.stages:
        yield f"{_INDENT}{stage.buffer.name}: {_buffer(stage.buffer)}"
        yield from _stage(stage)
    yield f"{_INDENT}return {', '.join(buffer.name for buffer in program.outputs)}".rstrip()


def _params(buffers: tuple[Buffer, ...]) -> str:
    return ", ".join(f"{buffer.name}: {_buffer(buffer)}" for buffer in buffers)


def _stage(stage: Stage) -> Iterator[str]:
    names = ", ".join(axis.name for axis in stage.axes)
    store = f"{stage.buffer.name}[{names or '()'}] = {print_expr(stage.body)}"
    if not stage.axes:
        yield f"{_INDENT}{store}"
        return
    extents = ", ".join(str(axis.extent) for axis in stage.axes)
    yield f"{_INDENT}for {names} in axes({extents}):"
    yield f"{_INDENT * 2}{store}"


# Functions --------------------------------------------------------------------------------------


def _function(function: Function) -> Iterator[str]:
    yield f"def {function.name}({_params(function.params)}):"
    yield from _suite(function.body, _INDENT)


def _suite(body: Stmt, indent: str) -> Iterator[str]:
    """Yield the lines of an indented suite; a Block of several statements becomes the suite
    itself."""
    if isinstance(body, Block) and len(body.statements) != 1:
        for statement in body.statements:
            yield from _statement(statement, indent)
        if not body.statements:
            yield f"{indent}pass"
    else:
        yield from _statement(body, indent)


def _statement(statement: Stmt, indent: str) -> Iterator[str]:
    inner = indent + _INDENT
    match statement:
        case Block():
            yield f"{indent}with block():"
            for item in statement.statements:
                yield from _statement(item, inner)
            if not statement.statements:
                yield f"{inner}pass"
        case For(var, extent, kind, body):
            yield f"{indent}for {var} in {kind.value}({extent}):"
            yield from _suite(body, inner)
        case Alloc(buffer, body):
            yield f"{indent}with alloc({_buffer(buffer)}) as {buffer.name}:"
            yield from _suite(body, inner)
        case Store(buffer, indices, value):
            yield f"{indent}{_element(buffer, indices)} = {print_expr(value)}"
        case If(condition, then, otherwise):
            yield f"{indent}if {print_expr(condition)}:"
            yield from _suite(then, inner)
            if otherwise is not None:
                yield f"{indent}else:"
                yield from _suite(otherwise, inner)
        case While(condition, body):
            yield f"{indent}while {print_expr(condition)}:"
            yield from _suite(body, inner)
        case Prefetch(buffer, indices, level):
            yield f"{indent}prefetch({_element(buffer, indices)}, level={level})"
        case Intrinsic(name, operands, is_late):
            parts = [repr(name), *map(_tile, operands), *(["late=True"] if is_late else [])]
            yield f"{indent}intrinsic({', '.join(parts)})"
        case Barrier(scope, copies, publishes):
            parts = [scope.value, *([] if copies is None else [f"copies={copies}"])]
            parts += ["publishes=True"] if publishes else []
            yield f"{indent}barrier({', '.join(parts)})"
        case _:
            assert_never(statement)


def _tile(tile: Tile) -> str:
    """Return the text of a tile: `x[i, 16*j]` for one element, `tile(x[i, 16*j], 1)` with axes, and
    `tile(x[i, 16*j], 1, 0, steps=(2, 1))` with steps other than 1."""
    element = _element(tile.buffer, tile.origin)
    steps = [f"steps={tile.steps}"] if tile.steps else []
    parts = [element, *map(str, tile.axes), *steps]
    return f"tile({', '.join(parts)})" if tile.axes else element


# Expressions ------------------------------------------------------------------------------------

# How tightly each form binds, as in Python; an operand is put in parentheses where it binds less.
_SELECT, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _ATOM = range(9)

_INFIX = {
    BinaryOp.OR: ("or", _OR),
    BinaryOp.AND: ("and", _AND),
    BinaryOp.LT: ("<", _COMPARE),
    BinaryOp.LE: ("<=", _COMPARE),
    BinaryOp.EQ: ("==", _COMPARE),
    BinaryOp.NE: ("!=", _COMPARE),
    BinaryOp.ADD: ("+", _SUM),
    BinaryOp.SUB: ("-", _SUM),
    BinaryOp.MUL: ("*", _PRODUCT),
    BinaryOp.DIV: ("/", _PRODUCT),
    BinaryOp.MOD: ("%", _PRODUCT),
}


def print_expr(expr: Expr) -> str:
    """Return the text of one expression."""
    return _expr(expr)[0]


def _expr(expr: Expr) -> tuple[str, int]:
    """Return the text of an expression and its binding strength, by which the caller decides
    whether to put it in parentheses."""
    match expr:
        case Var(name):
            return name, _ATOM
        case Size(extent):
            text = str(extent)
            return text, _ATOM if text.isidentifier() else _SUM
        case Const():
            return _const(expr), _ATOM
        case Load(buffer, indices):
            return _element(buffer, indices), _ATOM
        case Binary(op, left, right):
            return _binary(op, left, right)
        case Unary(UnaryOp.NEG, operand) if not isinstance(operand, Const):
            return f"-{_inside(operand, _SIGN)}", _SIGN
        case Unary(UnaryOp.NOT, operand):
            return f"not {_inside(operand, _NOT)}", _NOT
        case Unary(op, operand):
            return f"{op.value}({print_expr(operand)})", _ATOM
        case Select(condition, then, otherwise):
            arms = _inside(then, _OR), _inside(condition, _OR), _inside(otherwise, _OR)
            return f"{arms[0]} if {arms[1]} else {arms[2]}", _SELECT
        case Cast(dtype, operand):
            return f"cast({dtype.value}, {print_expr(operand)})", _ATOM
        case ByteTable(entries, dtype, operand):
            return f"byte_table({dtype.value}, '{entries.hex()}', {print_expr(operand)})", _ATOM
        case Reduce(op, axes, body):
            names = ", ".join(axis.name for axis in axes) or "()"
            extents = ", ".join(str(axis.extent) for axis in axes)
            return f"{op.value}({print_expr(body)} for {names} in axes({extents}))", _ATOM
        case _:
            assert_never(expr)


def _binary(op: BinaryOp, left: Expr, right: Expr) -> tuple[str, int]:
    if op not in _INFIX:
        return f"{op.value}({print_expr(left)}, {print_expr(right)})", _ATOM
    symbol, level = _INFIX[op]
    if op is BinaryOp.DIV and not dtype_of(left).is_float:
        symbol = "//"
    # Python's comparisons chain, so neither side of one may be another.
    left_level = level + 1 if level == _COMPARE else level
    return f"{_inside(left, left_level)} {symbol} {_inside(right, level + 1)}", level


def _inside(expr: Expr, level: int) -> str:
    text, own = _expr(expr)
    return text if own >= level else f"({text})"


def _const(const: Const) -> str:
    """Return the text of a constant: i64, f32 and bool constants are bare literals, others name the
    dtype."""
    value = const.value
    text = repr(value)
    match const.dtype:
        case DType.BOOL if isinstance(value, bool):
            return text
        case DType.I64 if type(value) is int:
            return text
        case DType.F32 if isinstance(value, float) and not math.isnan(value):
            return text
        case _:
            return f"{const.dtype.value}({text})"


def _element(buffer: Buffer, indices: tuple[Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(print_expr, indices)) or '()'}]"
