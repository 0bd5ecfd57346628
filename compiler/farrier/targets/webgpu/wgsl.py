"""The renderer of lowered kernels as WGSL: a module with an entry point for each launch.

Every parameter is a storage buffer, bound in order. Constants are read-only and all other buffers
read-write, because WebGPU does not allow a buffer to be bound both ways and most values share one
arena. `targets/webgpu/memory.py` defines how elements are stored. A kernel with open (dynamic) dims
has an additional buffer of i64 sizes; all workspace buffers share the last buffer, of words. The
sizes are read-only, because all threads must reach a barrier together, and Tint (a WGSL compiler)
treats values from a writable buffer as possibly different between threads. Blocks are numbered
along two axes of the grid, each of which has at most 65,535. Indices are i32, since a binding has
at most 2^31 bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import assert_never

import numpy as np

from farrier.errors import CompilerError
from farrier.ir import expr as e
from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier
from farrier.ir.dim import Atom, DimOp, Extent, Symbol, bounds, number, product
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
from farrier.ir.linear import to_expr
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
from farrier.ir.walk import children, walk
from farrier.lower.write_whole_words import shared_words
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.gpu.launches import entry_points, is_natural, workspaces
from farrier.targets.interface import EntryPoint
from farrier.targets.webgpu import memory, subgroups, wide
from farrier.targets.webgpu.functions import functions
from farrier.targets.webgpu.memory import TYPES
from farrier_device.webgpu_library import ENABLE_SUBGROUPS

MOST_BUFFERS = 8  # By WebGPU's default limits.
_SCRATCH = "scratch_"
_WORD = 4  # bytes
_MOST = 2**31 - 1  # The greatest number of 32 bits with a sign.
_UNROLLED = 64  # Longer bodies stay loops: a compiler unrolls what pays.

# The functions of WGSL that are too inexact by its specification, such as atan by 4096 units.
REPLACED = (
    *("log", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "tanh", "asinh", "acosh", "atanh"),
)
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
_OF_BOOLEANS = {BinaryOp.MIN: "({0} && {1})", BinaryOp.MAX: "({0} || {1})"}
_OF_INTEGERS = {
    BinaryOp.DIV: "floor_div({0}, {1})",
    BinaryOp.MOD: "floor_mod({0}, {1})",
    BinaryOp.MIN: "min({0}, {1})",
    BinaryOp.MAX: "max({0}, {1})",
    BinaryOp.POW: "whole_power({0}, {1})",
}


# Narrow integers have 32 bits in WGSL: floats saturate at the type's range, and integers lose other
# bits.
_SATURATED = {
    DType.U8: "min({0}, 255u)",
    DType.I8: "clamp({0}, -128, 127)",
    DType.U16: "min({0}, 65535u)",
    DType.I16: "clamp({0}, -32768, 32767)",
}
_WRAPPED = {
    DType.U8: "({0} & 255u)",
    DType.I8: "(({0} << 24u) >> 24u)",
    DType.U16: "({0} & 65535u)",
    DType.I16: "(({0} << 16u) >> 16u)",
}


def render(function: Function, has_f16: bool = False) -> str:
    """Return the WGSL module of a lowered kernel. `has_f16` is true if the device has the feature
    `shader-f16`. Raises InexpressibleError."""
    written = _written(function)
    alone = (DType.F16,) if has_f16 else ()
    if shared := sorted(shared_words(function, alone)):
        raise InexpressibleError(f"its threads write parts of the same word of {shared[0]}")
    parts = [
        _binding(position, buffer, buffer.name in written, has_f16)
        for position, buffer in enumerate(function.params)
    ]
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
        for line in _Entry(function, launch, entry, has_f16).lines()
    ]
    text = "\n".join([*parts, *bodies]) + "\n"
    helpers = functions(re.findall(r"\b(\w+)\(", text))
    enabled = [
        *(["enable f16;"] if re.search(r"\bf16\b", text) else []),
        *([ENABLE_SUBGROUPS] if "exchanged(" in text else []),
    ]
    return "\n\n".join(filter(None, ("\n".join(enabled), helpers, text)))


def _written(function: Function) -> frozenset[str]:
    return frozenset(b.name for s in walk_stmts(function.body) for b in s.writes)


def why_not_type(buffer: Buffer, is_written: bool) -> str:
    """Return the reason why kernels cannot read or write an array of the buffer's dtype, as a
    clause; "" if they can."""
    if buffer.dtype in memory.STORED:
        return ""
    verb = "write" if is_written else "read"
    return f"{buffer.name} is {buffer.dtype}, which kernels of WebGPU cannot {verb}"


def _check_type(buffer: Buffer, is_written: bool) -> None:
    if reason := why_not_type(buffer, is_written):
        raise InexpressibleError(reason)


def scratch_bytes(function: Function) -> Extent:
    """Return the bytes of a kernel's workspace buffers, which are placed one after another."""
    total: Extent = 0
    is_wide = has_wide_values(function)
    for buffer in workspaces(function):
        total = total + _words(buffer, is_wide) * _WORD
    return total


def _words(buffer: Buffer, is_wide: bool) -> Extent:
    """Return the number of words of a workspace buffer. Each element takes one word, or two if it
    is an i64 and `is_wide` is true."""
    each = 2 if is_wide and buffer.dtype is DType.I64 else 1
    return each * product(buffer.element_layout.physical_shape(buffer.shape))


def _binding(position: int, buffer: Buffer, is_written: bool, has_f16: bool) -> str:
    _check_type(buffer, is_written)
    is_constant = buffer.scope is MemoryScope.CONSTANT and not is_written
    access = "read" if is_constant else "read_write"
    element = memory.element_type(buffer.dtype, has_f16)
    return (
        f"@group(0) @binding({position}) var<storage, {access}> {_memory(buffer.name)}: "
        f"array<{element}>;"
    )


def _memory(name: str) -> str:
    """Return the WGSL name of a buffer. It has a prefix that WGSL keywords and variables do not
    have."""
    return f"m_{name}"


def _elements(buffer: Buffer) -> int:
    """Return the number of elements of the WGSL array for a buffer, which must be positive."""
    nbytes = buffer.type.nbytes
    if not isinstance(nbytes, int):
        raise InexpressibleError(f"its array {buffer.name} has an open size, and threads have none")
    return max(1, nbytes * 8 // max(8, buffer.dtype.bits))


def _variable(name: str) -> str:
    return f"v_{name}"


class _Entry:
    """The renderer of one entry point."""

    def __init__(
        self, function: Function, launch: Launch, entry: EntryPoint, has_f16: bool
    ) -> None:
        self._function = function
        self._has_f16 = has_f16
        self._launch = launch
        self._entry = entry
        ranges: dict[str, Extent] = {
            s.var: s.extent for s in walk_stmts(launch.body) if isinstance(s, For)
        }
        ranges |= {loop.var: loop.extent for loop in launch.blocks}
        self._simplifier = Simplifier(ranges)
        self._is_index = False  # The expression is a part of an address.
        self._has_wide_values = has_wide_values(function)
        self._has_exchanges = subgroups.has_exchanges(launch.body)
        self._extremes = _extremes(function)
        self._values: dict[str, str] = {}  # The variables of unrolled loops, as they are now.
        self._sizes = {
            symbol.name: f"sizes_[{position}].x" for position, symbol in enumerate(function.dims)
        }
        self._scratch: dict[str, Extent] = {}  # The first word of each workspace buffer.
        first: Extent = 0
        for buffer in workspaces(function):
            _check_type(buffer, is_written=True)
            self._scratch[buffer.name] = first
            first = first + _words(buffer, self._has_wide_values)

    def lines(self) -> list[str]:
        lowered = LoweredLaunch.of(self._launch)
        lines = []
        for buffer in lowered.shared:
            size = _elements(buffer)
            lines.append(
                f"var<workgroup> {_memory(buffer.name)}: array<{self._type(buffer)}, {size}>;"
            )
        numbers: Sequence[str] = ("  @builtin(local_invocation_index) thread_: u32,",)
        numbered: Sequence[str] = ()
        if self._has_exchanges:
            numbers, numbered = subgroups.PARAMETERS, subgroups.thread_number(self._entry.threads)
        lines += [
            f"@compute @workgroup_size({self._entry.threads})",
            f"fn {self._function.name}{self._entry.suffix}(",
            "  @builtin(workgroup_id) group_: vec3<u32>,",
            "  @builtin(num_workgroups) groups_: vec3<u32>,",
            *numbers,
            ") {",
            "  let block_ = i32(group_.x + group_.y * groups_.x);",
            *numbered,
            *self._named_sizes(),
            f"  if (block_ >= {self._extent(self._entry.blocks)}) {{ return; }}",
            *self._digits(self._launch.blocks, "block_"),
            *self._digits(lowered.threads, "i32(thread_)"),
            *self._stmt(lowered.body, "  "),
            "}",
        ]
        return lines

    def _type(self, buffer: Buffer) -> str:
        if buffer.dtype not in memory.TYPES:
            raise InexpressibleError(
                f"its array {buffer.name} is {buffer.dtype}, which kernels of WebGPU do not have"
            )
        return wide.PAIR if self._has_pairs(buffer) else memory.TYPES[buffer.dtype]

    def _named_sizes(self) -> list[str]:
        lines = []
        for size in self._function.sizes:
            lines.append(f"  let {size.name}_ = {self._extent(size.extent)};")
            self._sizes[size.name] = f"{size.name}_"
        return lines

    def _digits(self, loops: Sequence[For], of: str) -> list[str]:
        """Return the statements that compute the loop variables of a nest from the linear number of
        an iteration."""
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
                return [f"{indent}{line}" for line in self._store(buffer, indices, value)]
            case If(condition, then, otherwise):
                self._check_together(stmt)
                lines = [f"{indent}if ({self._expr(condition)}) {{", *self._stmt(then, deeper)]
                if otherwise is not None:
                    lines += [f"{indent}}} else {{", *self._stmt(otherwise, deeper)]
                return [*lines, f"{indent}}}"]
            case While(condition, body):
                head = f"{indent}while ({self._expr(condition)}) {{"
                return [head, *self._stmt(body, deeper), f"{indent}}}"]
            case Prefetch():
                return []
            case Barrier(MemoryScope.SUBGROUP):
                # Threads that leave a branch or a loop go on together, by WGSL's rules.
                return []
            case Barrier(scope):
                device = [] if scope is MemoryScope.WORKGROUP else [f"{indent}storageBarrier();"]
                return [*device, f"{indent}workgroupBarrier();"]
            case Intrinsic():
                return [f"{indent}{self._exchange(stmt)}"]
        assert_never(stmt)

    def _check_together(self, branch: If) -> None:
        """Raise InexpressibleError if threads exchange values within `branch`. An exchange may wait
        for all threads of the block, and some of them might not take the branch."""
        if self._has_exchanges and subgroups.has_exchanges(branch):
            raise InexpressibleError("its threads exchange values in a branch")

    def _exchange(self, call: Intrinsic) -> str:
        """Return the statement with which a thread reads the word of another one."""
        if call.name not in subgroups.EXCHANGES:
            raise InexpressibleError(f"WebGPU has no intrinsic {call.name}")
        to, source = call.operands
        kind = memory.TYPES[to.buffer.dtype]
        word = f"bitcast<u32>({self._load(source.buffer, source.origin)})"
        other = f"exchanged({word}, {subgroups.EXCHANGES[call.name]}u, thread_, lanes_)"
        at = self._offset(to.buffer, to.origin)
        return f"{_memory(to.buffer.name)}[{at}] = bitcast<{kind}>({other});"

    def _is_short(self, loop: For) -> bool:
        size = 1
        for stmt in walk_stmts(loop):
            if isinstance(stmt, For):
                size *= number(stmt.extent) if stmt.kind is LoopKind.UNROLLED else 1
        return size <= _UNROLLED

    def _store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> list[str]:
        at = self._offset(buffer, indices)
        if self._has_pairs(buffer):
            return self._store_wide(buffer, at, self._wide(value))
        if buffer.name in self._extremes and isinstance(value, Const):
            value = Const(max(-_MOST - 1, min(_MOST, value.value)), value.dtype)
        if self._is_wide(buffer) and isinstance(value, Load) and self._is_wide(value.buffer):
            source = self._offset(value.buffer, value.indices)
            return [f"{_memory(buffer.name)}[{at}] = {_memory(value.buffer.name)}[{source}];"]
        if self._is_own(buffer):
            return [f"{_memory(buffer.name)}[{at}] = {self._as_element(value, buffer.dtype)};"]
        if buffer.name in self._scratch:
            word = memory.as_word(self._as_element(value, buffer.dtype), buffer.dtype)
            return [f"{self._word(buffer, at)} = {word};"]
        if isinstance(value, Cast) and value.dtype is buffer.dtype and buffer.dtype.is_float:
            value = value.operand if e.dtype_of(value.operand).is_float else value
        text = self._expr(value)
        return memory.stored(_memory(buffer.name), at, text, buffer.dtype, self._has_f16)

    def _has_pairs(self, buffer: Buffer) -> bool:
        """Check whether an i64 buffer may contain numbers of more than 32 bits, so that its
        elements are pairs of words."""
        return buffer.dtype is DType.I64 and self._has_wide_values

    def _store_wide(self, buffer: Buffer, at: str, text: str) -> list[str]:
        if buffer.name not in self._scratch:
            return [f"{_memory(buffer.name)}[{at}] = {text};"]
        words = self._word(buffer, f"2 * ({at})"), self._word(buffer, f"2 * ({at}) + 1")
        stores = [f"  {word} = pair_.{part};" for word, part in zip(words, "xy", strict=True)]
        return [f"{{ let pair_ = {text};", *stores, "}"]

    def _load_wide(self, buffer: Buffer, at: str) -> str:
        if buffer.name not in self._scratch:
            return f"{_memory(buffer.name)}[{at}]"
        words = self._word(buffer, f"2 * ({at})"), self._word(buffer, f"2 * ({at}) + 1")
        return f"{wide.PAIR}({', '.join(words)})"

    def _as_element(self, value: Expr, dtype: DType) -> str:
        """Return the WGSL expression for `value`, rounded to the precision of `dtype`. It is
        used for elements in private and workgroup memory, where each element has a variable of
        its own."""
        text = self._expr(value)
        is_rounded = isinstance(value, Cast | Load) and e.dtype_of(value) is dtype
        return text if is_rounded else memory.rounded(text, dtype)

    def _is_own(self, buffer: Buffer) -> bool:
        return buffer.scope in (MemoryScope.WORKGROUP, *PRIVATE)

    def _is_wide(self, buffer: Buffer) -> bool:
        """Check whether a buffer contains 64-bit elements in the layout of the host."""
        return buffer.dtype is DType.I64 and buffer in self._function.params

    def _word(self, buffer: Buffer, at: str) -> str:
        """Return the WGSL expression for the word at an offset of a workspace buffer."""
        return f"{_SCRATCH}[{self._extent(self._scratch[buffer.name])} + {at}]"

    def _offset(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Return the WGSL expression, an i32, for the position of the element with these indices in
        its buffer."""
        around, self._is_index = self._is_index, True
        text = self._expr(to_expr(flatten(buffer, indices, self._simplifier, 1)))
        self._is_index = around
        return text

    def _load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        at = self._offset(buffer, indices)
        if self._has_pairs(buffer):
            assert self._is_index, "a value of 64 bits has two words"
            return f"narrow({self._load_wide(buffer, at)})"
        if self._is_own(buffer):
            return f"{_memory(buffer.name)}[{at}]"
        if buffer.name in self._scratch:
            return memory.of_word(self._word(buffer, at), buffer.dtype)
        return memory.loaded(_memory(buffer.name), at, buffer.dtype, self._has_f16)

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
                text = _UNARY.get(op, f"{op.value}({{0}})").format(f"({self._expr(operand)})")
                return _WRAPPED.get(e.dtype_of(operand), "{0}").format(text)
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

    def _wide(self, expr: Expr) -> str:
        """Return the WGSL expression, a pair of words, for an i64 value that is not an index."""
        match expr:
            case Const(value, _):
                return wide.constant(int(value))
            case Cast(_, operand):
                return self._widened(operand)
            case _ if not _is_data(expr) and self._fits(expr):
                return f"wide({self._expr(expr)})"
            case Load(buffer, indices):
                return self._load_wide(buffer, self._offset(buffer, indices))
            case Select(condition, then, otherwise):
                parts = (self._wide(otherwise), self._wide(then), self._expr(condition))
                return f"select({', '.join(parts)})"
            case Unary(UnaryOp.NEG, operand):
                return f"wide_negative({self._wide(operand)})"
            case Unary(UnaryOp.ABS, operand):
                return f"wide_magnitude({self._wide(operand)})"
            case Binary(op, left, right) if op in wide.OPERATORS:
                return wide.OPERATORS[op].format(self._wide(left), self._wide(right))
        raise InexpressibleError("it computes in i64 what kernels of WebGPU do not")

    def _fits(self, expr: Expr) -> bool:
        """Check whether 32 bits hold an integer expression of loop variables and sizes. Only
        constant bounds are checked, as sizes themselves always fit."""
        ends = (end for end in self._simplifier.bounds(expr) if isinstance(end, int))
        return all(-_MOST <= end <= _MOST for end in ends)

    def _widened(self, operand: Expr) -> str:
        """Return the WGSL expression for the conversion of a value to i64, as a pair of words."""
        source = e.dtype_of(operand)
        if source is DType.I64:
            return self._wide(operand)
        if source not in TYPES:
            raise InexpressibleError(f"nothing in WebGPU converts {source} to i64")
        text = self._expr(operand)
        if source.is_float:
            return f"wide_of_float({text})"
        if source is DType.BOOL:
            return f"{wide.PAIR}(select(0u, 1u, {text}), 0u)"
        return f"wide({text})" if TYPES[source] == "i32" else f"{wide.PAIR}({text}, 0u)"

    def _of_wide(self, dtype: DType, operand: Expr) -> str:
        """Return the WGSL expression for the conversion of an i64 value to another dtype."""
        text = self._wide(operand)
        if dtype is DType.BOOL:
            return f"any({text} != {wide.constant(0)})"
        if dtype.is_float:
            return memory.rounded(f"float_of_wide({text})", dtype)
        low = f"{text}.x" if TYPES[dtype] == "u32" else f"bitcast<i32>({text}.x)"
        return _WRAPPED.get(dtype, "{0}").format(low)

    def _binary(self, op: BinaryOp, left: Expr, right: Expr) -> str:
        dtype = e.dtype_of(left)
        is_exact = self._is_index or not (_is_data(left) or _is_data(right))
        is_exact = is_exact or not self._has_wide_values
        if dtype is DType.I64 and not is_exact and op in wide.COMPARISONS:
            return wide.COMPARISONS[op].format(self._wide(left), self._wide(right))
        if op in _OVERFLOWING and dtype is DType.I64 and not is_exact:
            raise InexpressibleError(f"its {op} of {dtype} would have more than 32 bits")
        if op is BinaryOp.MUL_HIGH and dtype in _WRAPPED:
            raise InexpressibleError(f"nothing in WebGPU computes {op} of {dtype}")
        text = self._operation(op, left, right, dtype)
        return _WRAPPED[dtype].format(text) if op in _OVERFLOWING and dtype in _WRAPPED else text

    def _operation(self, op: BinaryOp, left: Expr, right: Expr, dtype: DType) -> str:
        a, b = self._expr(left), self._expr(right)
        if op is BinaryOp.NE:
            if left == right and dtype.is_float:
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
            TYPES[dtype] == "u32" or (is_natural(left) and is_natural(right))
        ):
            return f"({a} {'/' if op is BinaryOp.DIV else '%'} {b})"
        if dtype is DType.BOOL:
            if op not in _OF_BOOLEANS:
                raise InexpressibleError(f"nothing in WebGPU computes {op} of {dtype}")
            return _OF_BOOLEANS[op].format(a, b)
        return _OF_INTEGERS[op].format(a, b)

    def _cast(self, dtype: DType, operand: Expr) -> str:
        source = e.dtype_of(operand)
        if dtype not in TYPES or source not in TYPES:
            raise InexpressibleError(f"nothing in WebGPU converts {source} to {dtype}")
        is_value = self._has_wide_values and not self._is_index
        if source is DType.I64 is not dtype and is_value and _is_data(operand):
            return self._of_wide(dtype, operand)
        text = self._expr(operand)
        if dtype is DType.I64 and not self._is_index and (source.is_float or source is DType.U32):
            raise InexpressibleError(
                f"its conversion of {source} to i64 may have more than 32 bits"
            )
        wanted = TYPES[dtype]
        if dtype is DType.BOOL:
            return text if source is DType.BOOL else f"!({text} == {TYPES[source]}(0))"
        if dtype.is_float:
            whole = text if source.is_float else f"f32({text})"
            return whole if dtype in (source, DType.F32) else memory.rounded(whole, dtype)
        if source.is_float:
            return _SATURATED.get(dtype, "{0}").format(f"to_{wanted}({text})")
        whole = text if TYPES[source] == wanted else f"{wanted}({text})"
        is_narrower = dtype in _WRAPPED and source not in (dtype, DType.BOOL)
        return _WRAPPED[dtype].format(whole) if is_narrower else whole


def _extremes(function: Function) -> frozenset[str]:
    """Return the i64 buffers that hold a running minimum or maximum. Their initial value, an i64
    extreme, can be replaced by the extreme of 32 bits, since all numbers compared are within it."""
    ends = BinaryOp.MIN, BinaryOp.MAX
    return frozenset(
        stmt.buffer.name
        for stmt in walk_stmts(function.body)
        if isinstance(stmt, Store) and stmt.buffer.dtype is DType.I64
        if isinstance(stmt.value, Binary) and stmt.value.op in ends
        if Load(stmt.buffer, stmt.indices) in (stmt.value.left, stmt.value.right)
    )


def has_wide_values(function: Function) -> bool:
    """Check whether a kernel computes with i64 values from elements, which may need more than 32
    bits. Other i64 values are indices."""
    params = {buffer.name for buffer in function.params}

    def visit(node: object, is_index: bool) -> bool:
        match node:
            case Cast(DType.I64, operand) if e.dtype_of(operand) is not DType.BOOL:
                return not is_index
            case Load(buffer, indices):
                is_wide = buffer.dtype is DType.I64 and buffer.name in params and not is_index
                return is_wide or any(visit(index, True) for index in indices)
            case Store(buffer, indices, Load(source, places)) if buffer.name in params:
                is_wide = source.dtype is DType.I64 is not buffer.dtype and source.name in params
                return is_wide or any(visit(index, True) for index in (*indices, *places))
            case Store(_, indices, value):
                return visit(value, is_index) or any(visit(index, True) for index in indices)
        return any(visit(child, is_index) for child in children(node))

    return visit(function.body, False)


def _is_data(expr: Expr) -> bool:
    """Check whether an integer expression depends on an element of a buffer, rather than on
    variables and sizes alone."""
    return any(isinstance(node, Load) for node in walk(expr))


def _constant(value: float, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype not in TYPES:
        raise InexpressibleError(f"it computes in {dtype}, which kernels of WebGPU do not have")
    if not dtype.is_float:
        if not -(2**31) <= value < 2**32:
            raise InexpressibleError(f"its constant {value} has more than 32 bits")
        if TYPES[dtype] == "u32":
            return f"{value}u"
        return str(value) if value >= 0 else f"({value})"
    if dtype.is_narrow_float:
        value = float(np.asarray(value).astype(dtype.numpy))
    if math.isnan(value):
        return "not_a_number()"
    if math.isinf(value):
        return "infinity()" if value > 0 else "(-infinity())"
    return f"f32({value!r})"
