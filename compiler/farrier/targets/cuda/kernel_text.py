"""Render a lowered kernel as LLVM text for NVPTX: a module with an entry point for each launch.

Every parameter is a pointer to global memory. The sizes of a kernel with open dims are one more, of
i64, and its workspace buffers share the last. Blocks and threads are numbered along one axis.
Arrays of a block lie in address space 3; variables and arrays of a thread are stack slots, which
LLVM's passes turn into registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from farrier.ir.addresses import flatten
from farrier.ir.affine import Simplifier, to_expr
from farrier.ir.dim import Extent, ceildiv, number
from farrier.ir.expr import Buffer, Expr
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
from farrier.ir.threads import Launch, LoweredLaunch, launches
from farrier.targets.cuda.code import Code, memory_type
from farrier.targets.cuda.expressions import Expressions
from farrier.targets.cuda.functions import definition_of
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.gpu.launches import entry_points, workspaces
from farrier.targets.interface import EntryPoint

_ALIGNMENT = 16  # Bytes: that of the widest access of a thread.
_UNROLLED = 1024  # Statements: longer bodies stay loops, which LLVM unrolls where it pays.
_SREG = "llvm.nvvm.read.ptx.sreg"
_BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"
# The sizes of a launch that the driver refuses: 2^31 blocks along x, 1024 threads.
MOST_BLOCKS, MOST_THREADS = (1 << 31) - 1, 1024


def render(function: Function) -> str:
    """Return the module of a lowered kernel. Raises InexpressibleError."""
    entries = zip(entry_points(function), launches(function), strict=True)
    parts = [_Entry(function, launch, entry) for entry, launch in entries]
    bodies = [line for part in parts for line in part.lines()]
    functions = sorted({name for part in parts for name in part.code.functions})
    declarations = {line: None for part in parts for line in part.code.declarations}
    for name in functions:
        text, declared = definition_of(*name)
        bodies.append(text)
        declarations |= dict.fromkeys(declared)
    return "\n".join([*bodies, *declarations]) + "\n"


def scratch_bytes(function: Function) -> Extent:
    """Return the bytes of a kernel's workspace buffers, which lie one after the other."""
    total: Extent = 0
    for buffer in workspaces(function):
        total = total + _aligned(buffer)
    return total


def _aligned(buffer: Buffer) -> Extent:
    return ceildiv(buffer.nbytes, _ALIGNMENT) * _ALIGNMENT


def _elements(buffer: Buffer) -> int:
    return max(1, number(buffer.type.nbytes) // buffer.dtype.nbytes)


class _Entry:
    """One entry point."""

    def __init__(self, function: Function, launch: Launch, entry: EntryPoint) -> None:
        self._function = function
        self._launch = launch
        self._entry = entry
        self.code = Code()
        ranges: dict[str, Extent] = {
            s.var: s.extent for s in walk_stmts(launch.body) if isinstance(s, For)
        }
        ranges |= {loop.var: loop.extent for loop in launch.blocks}
        self._simplifier = Simplifier(ranges)
        self._expressions = Expressions(self.code, self._address)
        self._pointers: dict[str, tuple[str, str]] = {}  # The type and the name, by the buffer's.

    def lines(self) -> list[str]:
        lowered = LoweredLaunch.of(self._launch)
        name = f"{self._function.name}{self._entry.suffix}"
        shared = [self._shared(name, buffer) for buffer in lowered.shared]
        params = self._params()
        self._prologue(lowered)
        self._stmt(lowered.body)
        self.code.line("ret void")
        attributes = f'"nvvm.maxntid"="{self._entry.threads}"'
        return [
            *shared,
            f"define ptx_kernel void @{name}({', '.join(params)}) {attributes} {{",
            *self.code.body(),
            "}",
        ]

    def _shared(self, entry: str, buffer: Buffer) -> str:
        name = f"@{entry}.{buffer.name}"
        self._pointers[buffer.name] = ("ptr addrspace(3)", name)
        array = f"[{_elements(buffer)} x {memory_type(buffer.dtype)}]"
        return f"{name} = internal addrspace(3) global {array} undef, align {_ALIGNMENT}"

    def _params(self) -> list[str]:
        names = [buffer.name for buffer in self._function.params]
        for name in names:
            self._pointers[name] = ("ptr addrspace(1)", f"%m_{name}")
        extra = ["%sizes_"] if self._function.dims else []
        extra += ["%scratch_"] if scratch_bytes(self._function) != 0 else []
        return [f"ptr addrspace(1) {name}" for name in (*(f"%m_{n}" for n in names), *extra)]

    def _prologue(self, lowered: LoweredLaunch) -> None:
        code, expressions = self.code, self._expressions
        for position, symbol in enumerate(self._function.dims):
            place = code.value(f"getelementptr i64, ptr addrspace(1) %sizes_, i64 {position}")
            size = code.value(f"load i64, ptr addrspace(1) {place}, !invariant.load !0")
            expressions.sizes[symbol.name] = size
            code.declare("!0 = !{}")
        for named in self._function.sizes:
            expressions.sizes[named.name] = expressions.extent(named.extent)
        first: Extent = 0
        for buffer in workspaces(self._function):
            at = expressions.extent(first)
            place = code.value(f"getelementptr i8, ptr addrspace(1) %scratch_, i64 {at}")
            self._pointers[buffer.name] = ("ptr addrspace(1)", place)
            first = first + _aligned(buffer)
        self._digits(self._launch.blocks, self._special("ctaid.x"))
        self._digits(lowered.threads, self._special("tid.x"))

    def _special(self, register: str) -> str:
        value = self.code.call("i32", f"{_SREG}.{register}", ())
        return self.code.value(f"zext i32 {value} to i64")

    def _digits(self, loops: Sequence[For], of: str) -> None:
        """Set the variables of a nest, from the number of a point in it."""
        inner: Extent = 1
        for loop in reversed(loops):
            digit = of
            if inner != 1:
                digit = self.code.value(f"udiv i64 {of}, {self._expressions.extent(inner)}")
            if loop is not loops[0]:
                extent = self._expressions.extent(loop.extent)
                digit = self.code.value(f"urem i64 {digit}, {extent}")
            self._expressions.variables[loop.var] = digit
            inner = inner * loop.extent

    def _address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, str]:
        """Return the type of pointer and the address of an element."""
        offset = self._expressions.value(to_expr(flatten(buffer, indices, self._simplifier, 1)))
        kind, base = self._pointers[buffer.name]
        element = memory_type(buffer.dtype)
        return kind, self.code.value(f"getelementptr {element}, {kind} {base}, i64 {offset}")

    # -- statements

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case Block(statements):
                for part in statements:
                    self._stmt(part)
            case For():
                self._loop(stmt)
            case Alloc(buffer, body):
                array = f"[{_elements(buffer)} x {memory_type(buffer.dtype)}]"
                self._pointers[buffer.name] = ("ptr", self.code.slot(array))
                self._stmt(body)
            case Store(buffer, indices, value):
                kept = self._expressions.as_stored(buffer.dtype, self._expressions.value(value))
                kind, address = self._address(buffer, indices)
                self.code.line(f"store {memory_type(buffer.dtype)} {kept}, {kind} {address}")
            case If(condition, then, otherwise):
                self._if(condition, then, otherwise)
            case While(condition, body):
                self._while(condition, body)
            case Prefetch():
                pass
            case Barrier():
                self.code.declare(f"declare void @{_BARRIER}(i32)")
                self.code.line(f"call void @{_BARRIER}(i32 0)")
            case Intrinsic(name, _):
                raise InexpressibleError(f"CUDA has no intrinsic {name}")
            case _:
                assert_never(stmt)

    def _loop(self, loop: For) -> None:
        variables = self._expressions.variables
        if loop.kind is LoopKind.UNROLLED and _unrolled_size(loop) <= _UNROLLED:
            for value in range(number(loop.extent)):
                variables[loop.var] = str(value)
                self._stmt(loop.body)
            del variables[loop.var]
            return
        code = self.code
        slot, end = code.slot("i64"), self._expressions.extent(loop.extent)
        code.line(f"store i64 0, ptr {slot}")
        head, body, after = code.labels("head", "body", "after")
        code.start(head)
        counter = variables[loop.var] = code.value(f"load i64, ptr {slot}")
        runs = code.value(f"icmp slt i64 {counter}, {end}")
        code.branch(runs, body, after)
        code.start(body)
        self._stmt(loop.body)
        code.line(f"store i64 {code.value(f'add nsw i64 {counter}, 1')}, ptr {slot}")
        code.jump(head)
        code.start(after)
        del variables[loop.var]

    def _if(self, condition: Expr, then: Stmt, otherwise: Stmt | None) -> None:
        code = self.code
        taken, passed, after = code.labels("then", "else", "after")
        code.branch(self._expressions.value(condition), taken, passed)
        code.start(taken)
        self._stmt(then)
        code.jump(after)
        code.start(passed)
        if otherwise is not None:
            self._stmt(otherwise)
        code.jump(after)
        code.start(after)

    def _while(self, condition: Expr, body: Stmt) -> None:
        code = self.code
        head, inside, after = code.labels("head", "body", "after")
        code.start(head)
        code.branch(self._expressions.value(condition), inside, after)
        code.start(inside)
        self._stmt(body)
        code.jump(head)
        code.start(after)


def _unrolled_size(loop: For) -> int:
    size = 1
    for stmt in walk_stmts(loop):
        if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
            size *= number(stmt.extent)
    return size
