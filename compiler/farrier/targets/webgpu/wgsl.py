"""Render a lowered kernel as WGSL: a module with an entry point for each launch.

Every parameter is a storage buffer, bound in order; constants are read only, and all others are
read and written, because a buffer may not be bound in both ways at once and one arena holds most
values. The sizes of a kernel with open dims are one more, of i64, and its workspace buffers share
the last, of words. Sizes are read only: all threads have to arrive at a barrier, and Tint takes
what a written buffer holds for a value that threads may see differently. Blocks are numbered along
two axes of the grid, of which a device allows 65,535 each. Indices are i32: a binding has at most
2^31 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import assert_never

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier, to_expr
from farrier.ir.dim import Atom, DimOp, Extent, Symbol, bounds, number
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
)
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    Function,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.statements import walk_stmts
from farrier.ir.threads import PRIVATE, Launch, LoweredLaunch, launches
from farrier.ir.types import DType
from farrier.ir.walk import walk
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.gpu.launches import entry_points, is_natural, workspaces
from farrier.targets.interface import EntryPoint
from farrier.targets.webgpu.functions import functions

MOST_BUFFERS = 8  # By WebGPU's default limits.
_SCRATCH = "scratch_"
_WORD = 4  # bytes
_UNROLLED = 64  # Longer bodies stay loops: a compiler unrolls what pays.

# The functions of WGSL that are too inexact by its specification, such as atan by 4096 units.
REPLACED = (
    *("log", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "tanh", "asinh", "acosh", "atanh"),
)
# The types of values. A value of 64 bits has 32 here, so its operators must not overflow.
TYPES = {
    DType.F32: "f32",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.BOOL: "bool",
    DType.I64: "i32",
    DType.I8: "i32",
    DType.U8: "u32",
}
# The types of elements of a storage buffer, which has words alone. To write a part of a word is a
# race with the thread that writes another part, so that the last three are only read.
STORED = {
    DType.F32: "f32",
    DType.I32: "i32",
    DType.U32: "u32",
    DType.I64: "vec2<i32>",
    DType.BOOL: "u32",
    DType.I8: "u32",
    DType.U8: "u32",
}
_WRITTEN = (DType.F32, DType.I32, DType.U32)
_BYTES = (DType.BOOL, DType.I8, DType.U8)
_NARROWED = (DType.I64, DType.I8, DType.U8)  # The types whose values WGSL has in 32 bits.

_UNARY = {
    UnaryOp.NEG: "-{0}",
    UnaryOp.NOT: "!{0}",
    UnaryOp.ROUND: "round({0})",
    UnaryOp.EXP_NONPOSITIVE: "exp({0})",
    **{op: f"{op.value}_({{0}})" for op in UnaryOp if op.value in REPLACED},
}
_INFIX = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.LT: "<",
    BinaryOp.LE: "<=",
    BinaryOp.EQ: "==",
    BinaryOp.AND: "&&",
    BinaryOp.OR: "||",
    BinaryOp.BIT_AND: "&",
    BinaryOp.BIT_OR: "|",
    BinaryOp.BIT_XOR: "^",
}
_OVERFLOWING = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.POW, BinaryOp.SHL)
_OF_FLOATS = {
    BinaryOp.DIV: "({0} / {1})",
    BinaryOp.MOD: "float_mod({0}, {1})",
    BinaryOp.MIN: "least({0}, {1})",
    BinaryOp.MAX: "most({0}, {1})",
    BinaryOp.POW: "power({0}, {1})",
    BinaryOp.SWISH: "swish({0}, {1})",
}
_OF_INTEGERS = {
    BinaryOp.DIV: "floor_div({0}, {1})",
    BinaryOp.MOD: "floor_mod({0}, {1})",
    BinaryOp.MIN: "min({0}, {1})",
    BinaryOp.MAX: "max({0}, {1})",
    BinaryOp.POW: "whole_power({0}, {1})",
}


# Bytes have 32 bits in WGSL: floats saturate at the type's range, and integers lose other bits.
_SATURATED = {DType.U8: "min({0}, 255u)", DType.I8: "clamp({0}, -128, 127)"}
_WRAPPED = {DType.U8: "({0} & 255u)", DType.I8: "(({0} << 24u) >> 24u)"}


def render(function: Function) -> str:
    """Return the module of a lowered kernel. Raises InexpressibleError."""
    written = _written(function)
    parts = [_binding(position, buffer, written) for position, buffer in enumerate(function.params)]
    if function.dims:
        parts.append(
            f"@group(0) @binding({len(parts)}) var<storage, read> sizes_: array<vec2<i32>>;"
        )
    if scratch_bytes(function) != 0:
        parts.append(
            f"@group(0) @binding({len(parts)}) var<storage, read_write> {_SCRATCH}: array<u32>;"
        )
    if len(parts) > MOST_BUFFERS:
        raise InexpressibleError(
            f"it has {len(parts)} arrays, and a kernel of WebGPU at most {MOST_BUFFERS}"
        )
    bodies = [
        line
        for entry, launch in zip(entry_points(function), launches(function), strict=True)
        for line in _Entry(function, launch, entry).lines()
    ]
    text = "\n".join([*parts, *bodies]) + "\n"
    helpers = functions(re.findall(r"\b(\w+)\(", text))
    return f"{helpers}\n\n{text}" if helpers else text


def _written(function: Function) -> frozenset[str]:
    return frozenset(b.name for s in walk_stmts(function.body) for b in s.writes)


def why_not_type(buffer: Buffer, is_written: bool) -> str:
    """Return the reason why no kernel can read or write an array of its type; "" if one can."""
    possible = _WRITTEN if is_written else STORED
    if buffer.dtype in possible and not (is_written and buffer.dtype in _NARROWED):
        return ""
    verb = "write" if is_written else "read"
    return f"{buffer.name} is {buffer.dtype}, which kernels of WebGPU cannot {verb}"


def _check_type(buffer: Buffer, is_written: bool) -> None:
    if reason := why_not_type(buffer, is_written):
        raise InexpressibleError(reason)


def scratch_bytes(function: Function) -> Extent:
    """Return the bytes of a kernel's workspace buffers, which lie one after the other."""
    total: Extent = 0
    for buffer in workspaces(function):
        total = total + buffer.nbytes
    return total


def _binding(position: int, buffer: Buffer, written: frozenset[str]) -> str:
    _check_type(buffer, buffer.name in written)
    is_constant = buffer.scope is MemoryScope.CONSTANT and buffer.name not in written
    access = "read" if is_constant else "read_write"
    element = STORED[buffer.dtype]
    return (
        f"@group(0) @binding({position}) var<storage, {access}> {_memory(buffer.name)}: "
        f"array<{element}>;"
    )


def _memory(name: str) -> str:
    """The name of a buffer. Names of WGSL and of variables have another beginning."""
    return f"m_{name}"


def _elements(buffer: Buffer) -> int:
    """The number of elements of an array for a buffer, which WGSL wants to be positive."""
    return max(1, number(buffer.type.nbytes) * 8 // max(8, buffer.dtype.bits))


def _variable(name: str) -> str:
    return f"v_{name}"


class _Entry:
    """One entry point."""

    def __init__(self, function: Function, launch: Launch, entry: EntryPoint) -> None:
        self._function = function
        self._launch = launch
        self._entry = entry
        ranges: dict[str, Extent] = {
            s.var: s.extent for s in walk_stmts(launch.body) if isinstance(s, For)
        }
        ranges |= {loop.var: loop.extent for loop in launch.blocks}
        self._simplifier = Simplifier(ranges)
        self._is_index = False  # The expression is a part of an address.
        self._values: dict[str, str] = {}  # The variables of unrolled loops, as they are now.
        self._sizes = {
            symbol.name: f"sizes_[{position}].x" for position, symbol in enumerate(function.dims)
        }
        self._scratch: dict[str, Extent] = {}  # The first word of each workspace buffer.
        first: Extent = 0
        for buffer in workspaces(function):
            _check_type(buffer, is_written=True)
            self._scratch[buffer.name] = first
            first = first + buffer.nbytes // _WORD

    def lines(self) -> list[str]:
        lowered = LoweredLaunch.of(self._launch)
        lines = []
        for buffer in lowered.shared:
            size = _elements(buffer)
            lines.append(
                f"var<workgroup> {_memory(buffer.name)}: array<{self._type(buffer)}, {size}>;"
            )
        lines += [
            f"@compute @workgroup_size({self._entry.threads})",
            f"fn {self._function.name}{self._entry.suffix}(",
            "  @builtin(workgroup_id) group_: vec3<u32>,",
            "  @builtin(num_workgroups) groups_: vec3<u32>,",
            "  @builtin(local_invocation_index) thread_: u32,",
            ") {",
            "  let block_ = i32(group_.x + group_.y * groups_.x);",
            *self._named_sizes(),
            f"  if (block_ >= {self._extent(self._entry.blocks)}) {{ return; }}",
            *self._digits(self._launch.blocks, "block_"),
            *self._digits(lowered.threads, "i32(thread_)"),
            *self._stmt(lowered.body, "  "),
            "}",
        ]
        return lines

    def _type(self, buffer: Buffer) -> str:
        if buffer.dtype not in TYPES:
            raise InexpressibleError(
                f"its array {buffer.name} is {buffer.dtype}, which kernels of WebGPU do not have"
            )
        return TYPES[buffer.dtype]

    def _named_sizes(self) -> list[str]:
        lines = []
        for size in self._function.sizes:
            lines.append(f"  let {size.name}_ = {self._extent(size.extent)};")
            self._sizes[size.name] = f"{size.name}_"
        return lines

    def _digits(self, loops: Sequence[For], of: str) -> list[str]:
        """The variables of a nest, from the number of a point in it."""
        lines: list[str] = []
        inner: Extent = 1
        for loop in reversed(loops):
            digit = of if inner == 1 else f"{of} / {self._extent(inner)}"
            if loop is not loops[0]:
                digit = f"{digit} % {self._extent(loop.extent)}"
            lines.insert(0, f"  let {_variable(loop.var)} = {digit};")
            inner = inner * loop.extent
        return lines

    def _extent(self, extent: Extent) -> str:
        if isinstance(extent, int):
            return str(extent)
        terms = []
        for monomial, factor in extent.terms:
            atoms = [self._atom(atom) for atom in monomial]
            terms.append(" * ".join([str(factor), *atoms] if factor != 1 or not atoms else atoms))
        return f"({' + '.join(terms)})"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self._sizes[atom.name]
        left, right = self._extent(atom.left), self._extent(atom.right)
        if atom.op in (DimOp.MIN, DimOp.MAX):
            return f"{atom.op.value}({left}, {right})"
        if bounds(atom.left)[0] >= 0:
            return f"({left} {'/' if atom.op is DimOp.FLOORDIV else '%'} {right})"
        return f"floor_{'div' if atom.op is DimOp.FLOORDIV else 'mod'}({left}, {right})"

    def _stmt(self, stmt: Stmt, indent: str) -> list[str]:
        deeper = indent + "  "
        match stmt:
            case Block(statements):
                return [line for part in statements for line in self._stmt(part, indent)]
            case For(var, extent, LoopKind.UNROLLED, body) if self._is_short(stmt):
                lines = []
                for value in range(number(extent)):
                    self._values[var] = str(value)
                    lines += self._stmt(body, indent)
                del self._values[var]
                return lines
            case For(var, extent, _, body):
                name = _variable(var)
                head = f"for (var {name} = 0; {name} < {self._extent(extent)}; {name}++) {{"
                return [f"{indent}{head}", *self._stmt(body, deeper), f"{indent}}}"]
            case Alloc(buffer, body):
                # Unrolled loops may declare a name several times, each in a scope of its own.
                size = _elements(buffer)
                line = f"{deeper}var {_memory(buffer.name)}: array<{self._type(buffer)}, {size}>;"
                return [f"{indent}{{", line, *self._stmt(body, deeper), f"{indent}}}"]
            case Store(buffer, indices, value):
                text = self._expr(value)
                if buffer.name in self._scratch:
                    text = f"bitcast<u32>({text})"
                return [f"{indent}{self._element(buffer, indices)} = {text};"]
            case If(condition, then, otherwise):
                lines = [f"{indent}if ({self._expr(condition)}) {{", *self._stmt(then, deeper)]
                if otherwise is not None:
                    lines += [f"{indent}}} else {{", *self._stmt(otherwise, deeper)]
                return [*lines, f"{indent}}}"]
            case While(condition, body):
                head = f"{indent}while ({self._expr(condition)}) {{"
                return [head, *self._stmt(body, deeper), f"{indent}}}"]
            case Prefetch():
                return []
            case Barrier(scope):
                device = [] if scope is MemoryScope.WORKGROUP else [f"{indent}storageBarrier();"]
                return [*device, f"{indent}workgroupBarrier();"]
            case Intrinsic(name, _):
                raise InexpressibleError(f"WebGPU has no intrinsic {name}")
        assert_never(stmt)

    def _is_short(self, loop: For) -> bool:
        size = 1
        for stmt in walk_stmts(loop):
            if isinstance(stmt, For):
                size *= number(stmt.extent) if stmt.kind is LoopKind.UNROLLED else 1
        return size <= _UNROLLED

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        offset = self._offset(buffer, indices)
        if buffer.name in self._scratch:
            return f"{_SCRATCH}[{self._extent(self._scratch[buffer.name])} + {offset}]"
        return f"{_memory(buffer.name)}[{offset}]"

    def _offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """The number of an element in its memory, which 32 bits hold."""
        around, self._is_index = self._is_index, True
        text = self._expr(to_expr(flatten(buffer, indices, self._simplifier, 1)))
        self._is_index = around
        return text

    def _load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        if buffer.scope in (MemoryScope.WORKGROUP, *PRIVATE):
            return self._element(buffer, indices)
        if buffer.name in self._scratch:
            return f"bitcast<{TYPES[buffer.dtype]}>({self._element(buffer, indices)})"
        if buffer.dtype is DType.I64:
            return f"narrow({self._element(buffer, indices)})"
        if buffer.dtype not in _BYTES:
            return self._element(buffer, indices)
        at = self._offset(buffer, indices)
        byte = f"byte_of({_memory(buffer.name)}[({at}) / 4], {at})"
        if buffer.dtype is DType.BOOL:
            return f"({byte} != 0u)"
        return f"signed_byte({byte})" if buffer.dtype is DType.I8 else byte

    def _expr(self, expr: Expr) -> str:
        match expr:
            case Const(value, dtype):
                return _constant(value, dtype)
            case Var(name):
                return self._values.get(name, _variable(name))
            case Size(extent):
                return self._extent(extent)
            case Load(buffer, indices):
                return self._load(buffer, indices)
            case Unary(UnaryOp.ABS | UnaryOp.NEG as op, operand):
                return _UNARY.get(op, f"{op.value}({{0}})").format(f"({self._expr(operand)})")
            case Unary(op, operand):
                return _UNARY.get(op, f"{op.value}({{0}})").format(self._expr(operand))
            case Binary(op, left, right):
                return self._binary(op, left, right)
            case Select(condition, then, otherwise):
                parts = (self._expr(part) for part in (otherwise, then, condition))
                return f"select({', '.join(parts)})"
            case Cast(dtype, operand):
                return self._cast(dtype, operand)
            case ByteTable():
                raise InexpressibleError("WebGPU has no tables of bytes")
            case Reduce():
                raise CompilerError("a loop function holds no Reduce")
        assert_never(expr)

    def _binary(self, op: BinaryOp, left: Expr, right: Expr) -> str:
        a, b = self._expr(left), self._expr(right)
        dtype = e.dtype_of(left)
        is_exact = self._is_index or not (_is_data(left) or _is_data(right))
        if op in _OVERFLOWING and dtype in _NARROWED and not is_exact:
            raise InexpressibleError(f"its {op} of {dtype} would have more than 32 bits")
        if op is BinaryOp.NE:
            if left == right and dtype is DType.F32:
                return f"is_nan({a})"
            return f"!({a} == {b})"
        if op in _INFIX:
            if dtype is DType.BOOL and op in (BinaryOp.LT, BinaryOp.LE):
                a, b = f"u32({a})", f"u32({b})"
            return f"({a} {_INFIX[op]} {b})"
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            side = "left" if op is BinaryOp.SHL else "right"
            return f"shift_{side}_{TYPES[dtype]}({a}, {b})"
        if op is BinaryOp.MUL_HIGH:
            return f"mul_high_{TYPES[dtype]}({a}, {b})"
        if dtype.is_float:
            return _OF_FLOATS[op].format(a, b)
        if op in (BinaryOp.DIV, BinaryOp.MOD) and (
            dtype is DType.U32 or (is_natural(left) and is_natural(right))
        ):
            return f"({a} {'/' if op is BinaryOp.DIV else '%'} {b})"
        return _OF_INTEGERS[op].format(a, b)

    def _cast(self, dtype: DType, operand: Expr) -> str:
        text, source = self._expr(operand), e.dtype_of(operand)
        if dtype not in TYPES or source not in TYPES:
            raise InexpressibleError(f"nothing in WebGPU converts {source} to {dtype}")
        if dtype is DType.I64 and not self._is_index and (source.is_float or source is DType.U32):
            raise InexpressibleError(
                f"its conversion of {source} to i64 may have more than 32 bits"
            )
        wanted = TYPES[dtype]
        if dtype is DType.BOOL:
            return text if source is DType.BOOL else f"!({text} == {TYPES[source]}(0))"
        if source.is_float:
            whole = text if dtype.is_float else f"to_{wanted}({text})"
            return _SATURATED.get(dtype, "{0}").format(whole)
        whole = text if TYPES[source] == wanted else f"{wanted}({text})"
        is_narrower = dtype in _WRAPPED and source not in (dtype, DType.BOOL)
        return _WRAPPED[dtype].format(whole) if is_narrower else whole


def _is_data(expr: Expr) -> bool:
    """Check whether an integer depends on an element, and not on variables and sizes alone."""
    return any(isinstance(node, Load) for node in walk(expr))


def _constant(value: float, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype not in TYPES:
        raise InexpressibleError(f"it computes in {dtype}, which kernels of WebGPU do not have")
    if not dtype.is_float:
        if not -(2**31) <= value < 2**32:
            raise InexpressibleError(f"its constant {value} has more than 32 bits")
        return f"{value}u" if dtype is DType.U32 else str(value) if value >= 0 else f"({value})"
    if math.isnan(value):
        return "not_a_number()"
    if math.isinf(value):
        return "infinity()" if value > 0 else "(-infinity())"
    return f"f32({value!r})"
