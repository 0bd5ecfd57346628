"""Verify tensor programs and loop functions: scopes, ranks, element types, and the sign of extents.

An extent must not be negative for all values of the dims. An extent that is negative for some
values only is allowed: a kernel is called with the sizes of one model, and how these depend on each
other is not part of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, Symbol, is_less, symbols
from farrier.ir.expr import (
    BYTES,
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
    NamedSize,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.printer import print_ir, print_type
from farrier.ir.tensor import Stage, TensorProgram
from farrier.ir.types import DType, Layout

_ARGUMENTS = (MemoryScope.PARAM, MemoryScope.CONSTANT, MemoryScope.WORKSPACE)
_OF_ANY_EXTENT = (
    LoopKind.SERIAL,
    LoopKind.INDEPENDENT,
    LoopKind.PARALLEL,
    LoopKind.BLOCK,
)
_LOGICAL = (BinaryOp.AND, BinaryOp.OR)
_BYTES = (DType.U8, DType.I8)
_BITS = (BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR, BinaryOp.SHL, BinaryOp.SHR)
_WORDS = (DType.I32, DType.U32)


def verify_program(program: TensorProgram) -> None:
    """Raise CompilerError if a stage reads a buffer that is not written before, or reads a buffer
    with the wrong number of indices or as a wrong type."""
    checker = _Checker(program)
    for buffer in program.inputs:
        checker.define(buffer)
    for stage in program.stages:
        _check_stage(checker, stage)
    for buffer in (*program.inputs, *program.outputs):
        checker.argument(buffer)
    written = [stage.buffer for stage in program.stages]
    for buffer in program.outputs:
        if buffer not in written:
            raise checker.error(f"no stage writes the output {buffer.name} as it is declared")


def _check_stage(checker: _Checker, stage: Stage) -> None:
    name = stage.buffer.name
    if tuple(axis.extent for axis in stage.axes) != stage.buffer.shape:
        extents = [axis.extent for axis in stage.axes]
        raise checker.error(f"stage {name} runs over {extents}, its buffer is {stage.buffer.shape}")
    body: Expr = stage.body
    axes = stage.axes
    if isinstance(stage.body, Reduce):
        body, axes = stage.body.body, axes + stage.body.axes
    for axis in axes:
        checker.bind(axis.name)
    computed = checker.dtype(body)
    if computed is not stage.buffer.dtype:
        raise checker.error(
            f"stage {name} computes {computed}, its buffer holds {stage.buffer.dtype}"
        )
    for axis in axes:
        checker.unbind(axis.name)
    checker.define(stage.buffer)


def verify_function(function: Function) -> None:
    """Raise CompilerError if a loop nest uses a name out of scope, a wrong number of indices or a
    wrong type."""
    checker = _Checker(function)
    for buffer in function.params:
        if buffer.scope not in _ARGUMENTS:
            raise checker.error(f"the argument {buffer.name} is in scope {buffer.scope}")
        checker.define(buffer)
    checker.statement(function.body)


class _Checker:
    """A checker of one function or program, with the buffers and variables in scope at the current
    statement."""

    def __init__(self, root: TensorProgram | Function) -> None:
        self._root = root
        self._choices: tuple[Symbol, ...] = ()
        sizes: tuple[NamedSize, ...] = ()
        if isinstance(root, Function):
            self._choices, sizes = root.choices, root.sizes
        own = (size.symbol for size in sizes)
        self._symbols = frozenset((*root.dims, *own, *self._choices))
        self._buffers: dict[str, Buffer] = {}
        self._bound: set[str] = set()
        self._lanes = 0  # The product of the extents of the enclosing vectorized loops.
        self._used: set[str] = set()  # A loop variable's name is unique in the whole function.

    def error(self, message: str, at: Stmt | Expr | None = None) -> CompilerError:
        where = at if at is not None else self._root
        return CompilerError(f"kernel {self._root.name}: {message}\n{print_ir(where)}")

    def argument(self, buffer: Buffer) -> None:
        """Check that the extents of an argument are not negative for any values of the kernel's
        dims. Raises CompilerError."""
        for extent in buffer.shape:
            if not is_less(-1, extent):
                raise self.error(f"the extent {extent} of {buffer.name} may be negative")

    def define(self, buffer: Buffer) -> None:
        if buffer.name in self._buffers:
            raise self.error(f"two buffers are called {buffer.name}")
        for extent in buffer.shape:
            self._size(extent, buffer.name)
        if buffer.layout is not None and buffer.layout.swizzle is not None:
            self._swizzle(buffer, buffer.layout)
        self._buffers[buffer.name] = buffer

    def _swizzle(self, buffer: Buffer, layout: Layout) -> None:
        if buffer.scope is not MemoryScope.WORKGROUP:
            raise self.error(f"{buffer.name} has a swizzle, but lies in {buffer.scope}")
        assert layout.swizzle is not None
        why = layout.swizzle.why_not(layout.physical_shape(buffer.shape), layout.halo)
        if why:
            raise self.error(f"{buffer.name}: {why}")

    def _size(self, extent: Extent, owner: str) -> None:
        self._known(extent)
        if is_less(extent, 0):
            raise self.error(f"the extent {extent} of {owner} is negative")

    def _known(self, extent: Extent) -> None:
        for symbol in symbols((extent,)):
            if symbol not in self._symbols:
                raise self.error(f"{symbol} is not among the dims")

    def bind(self, name: str) -> None:
        if name in self._bound:
            raise self.error(f"two loops or axes run over {name}")
        self._bound.add(name)

    def unbind(self, name: str) -> None:
        self._bound.remove(name)

    def statement(self, node: Stmt) -> None:
        match node:
            case Block(statements):
                for item in statements:
                    self.statement(item)
            case For(var, extent, kind, body):
                self._size(extent, var)
                is_open = any(symbol not in self._choices for symbol in symbols((extent,)))
                if is_open and kind not in _OF_ANY_EXTENT:
                    raise self.error(f"the {kind} loop {var} runs over {extent}", node)
                if var in self._used:
                    raise self.error(f"two loops run over {var}")
                self._used.add(var)
                self.bind(var)
                self._lanes += kind is LoopKind.VECTORIZED
                self.statement(body)
                self._lanes -= kind is LoopKind.VECTORIZED
                self.unbind(var)
            case Alloc(buffer, body):
                if self._lanes:
                    raise self.error(f"all lanes of a vectorized loop share {buffer.name}", node)
                self.define(buffer)
                self.statement(body)
                del self._buffers[buffer.name]
            case Store(buffer, indices, value):
                self.element(buffer, indices, node)
                computed = self.dtype(value)
                if computed is not buffer.dtype:
                    raise self.error(f"stores {computed} into {buffer.name}: {buffer.dtype}", node)
            case If(condition, then, otherwise):
                self._expect(DType.BOOL, condition, "a condition")
                self.statement(then)
                if otherwise is not None:
                    self.statement(otherwise)
            case While(condition, body):
                if self._lanes:
                    raise self.error("a while stands in a vectorized loop", node)
                self._expect(DType.BOOL, condition, "a condition")
                self.statement(body)
            case Prefetch(buffer, indices, _):
                self.element(buffer, indices, node)
            case Intrinsic(_, operands):
                for tile in operands:
                    self.element(tile.buffer, tile.origin, node)
            case Barrier():
                pass
            case _:
                assert_never(node)

    def element(self, buffer: Buffer, indices: tuple[Expr, ...], at: Stmt | Expr) -> None:
        declared = self._buffers.get(buffer.name)
        if declared is not buffer and declared != buffer:
            there = (
                f"{print_type(declared.type)} in {declared.scope}" if declared else "not in scope"
            )
            here = f"{print_type(buffer.type)} in {buffer.scope}"
            raise self.error(f"buffer {buffer.name} is {there}, and used as {here}", at)
        if len(indices) != len(buffer.shape):
            raise self.error(f"{len(indices)} indices for {buffer.name}{list(buffer.shape)}", at)
        for index in indices:
            self._expect(DType.I64, index, f"an index of {buffer.name}")

    def dtype(self, node: Expr) -> DType:
        """Check the operands of an expression and return its element type."""
        match node:
            case Const(_, dtype):
                return dtype
            case Var(name):
                if name not in self._bound:
                    raise self.error(f"no loop around runs over {name}", node)
                return DType.I64
            case Size(extent):
                self._known(extent)
                return DType.I64
            case Load(buffer, indices):
                self.element(buffer, indices, node)
                return buffer.dtype
            case Unary(op, operand):
                computed = self.dtype(operand)
                if op is UnaryOp.NOT and computed is not DType.BOOL:
                    raise self.error(f"not of {computed}", node)
                return computed
            case Binary(op, left, right):
                shared = self._agree((left, right), node)
                if op in _LOGICAL and shared is not DType.BOOL:
                    raise self.error(f"{op} of {shared}", node)
                if op in _BITS and (shared is DType.BOOL or shared.is_float):
                    raise self.error(f"{op} of {shared}", node)
                if op is BinaryOp.MUL_HIGH and shared not in _WORDS:
                    raise self.error(f"{op} of {shared}", node)
                return DType.BOOL if op.is_comparison else shared
            case Select(condition, then, otherwise):
                self._expect(DType.BOOL, condition, "a condition")
                return self._agree((then, otherwise), node)
            case Cast(dtype, operand):
                self.dtype(operand)
                return dtype
            case ByteTable(entries, dtype, operand):
                computed = self.dtype(operand)
                if computed not in _BYTES or dtype not in _BYTES or len(entries) != BYTES:
                    raise self.error(f"a table of {len(entries)} {dtype} at a {computed}", node)
                return dtype
            case Reduce():
                raise self.error("a Reduce stands only at the root of a stage", node)
            case _:
                assert_never(node)

    def _expect(self, dtype: DType, node: Expr, what: str) -> None:
        computed = self.dtype(node)
        if computed is not dtype:
            raise self.error(f"{what} is {computed}, not {dtype}", node)

    def _agree(self, nodes: Iterable[Expr], parent: Expr) -> DType:
        first, second = (self.dtype(node) for node in nodes)
        if first is not second:
            raise self.error(f"operands of {first} and {second}", parent)
        return first
