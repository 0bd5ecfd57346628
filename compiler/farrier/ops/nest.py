"""Write a kernel as a loop nest, for an operator that is not a tensor expression.

The `nest` rule of such an operator is Python that reads as the kernel does: loops, conditions and
allocations are `with` blocks, elements are read and stored by indexing, formulas are Scalars.

    x, y = nest.input(0), nest.output(0)
    with nest.for_(x.shape[0]) as row:
        total = nest.variable(number(0, x.dtype), "total")
        with nest.for_(x.shape[1]) as i:
            with nest.if_(x[row, i] > 0):
                total.value += x[row, i]
            y[row, i] = total.value

A nest depends neither on the target nor on the number of threads. It consists of plain loops, and
the scheduling rule decides which of them become threads or vectors. The compiler does not check a
loop that is declared independent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from farrier.errors import CompilerError
from farrier.ir import dim
from farrier.ir import expr as e
from farrier.ir.dim import Extent, Symbol, bounds, maximum, product
from farrier.ir.expr import Buffer, Expr, Load, MemoryScope, Var
from farrier.ir.graph import Node
from farrier.ir.loop import Alloc, Block, For, Function, If, LoopKind, Prefetch, Stmt, Store, While
from farrier.ir.types import DType
from farrier.ops.operator import to_extents
from farrier.ops.scalar import Number, Scalar, coerce, number, scalar

if TYPE_CHECKING:
    from farrier.ops.operator import Array

Index: TypeAlias = int | Scalar
Indices: TypeAlias = Index | tuple[Index, ...]
Shape: TypeAlias = Sequence[Extent]

MOST_CHOSEN = 1024  # The highest number of threads of a kernel.


class Tensor:
    """A buffer of a loop nest, indexed with `shape`: the shape of its value, or another with as
    many elements in the same row-major order.

    `t[i, j]` returns the element as a formula; `t[i, j] = value` appends a store to the open block.
    """

    def __init__(
        self, nest: LoopBuilder, buffer: Buffer, shape: Shape, literal: Scalar | None = None
    ) -> None:
        self._nest = nest
        self._buffer = buffer
        self._literal = literal
        self.shape = tuple(shape)
        self.dtype = buffer.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Extent:
        """The number of elements."""
        return product(self.shape)

    def __getitem__(self, at: Indices) -> Scalar:
        if self._literal is not None:
            return self._literal
        return Scalar(Load(self._buffer, self._indices(at)), self.dtype)

    def __setitem__(self, at: Indices, value: Scalar | Number) -> None:
        stored = coerce(value, self.dtype).expr
        self._nest.append(Store(self._buffer, self._indices(at), stored))

    def prefetch(self, *at: Index) -> None:
        """Add a hint to fetch the cache line of an element into the first-level cache."""
        self._nest.append(Prefetch(self._buffer, self._indices(at), level=1))

    def _indices(self, at: Indices) -> tuple[Expr, ...]:
        exprs = tuple(map(_index, at if isinstance(at, tuple) else (at,)))
        if len(exprs) != self.rank:
            raise CompilerError(f"{len(exprs)} indices for {self._buffer.name}{list(self.shape)}")
        if self.shape == self._buffer.shape:
            return exprs
        flat: Expr = e.index(0)
        for index, extent in zip(exprs, self.shape, strict=True):
            flat = e.add(e.mul(flat, extent), index)
        return _unravel(flat, self._buffer.shape)


class Variable:
    """A scalar in a register that statements may change: `v.value = v.value + 1`."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @property
    def value(self) -> Scalar:
        return self._tensor[()]

    @value.setter
    def value(self, new: Scalar | Number) -> None:
        self._tensor[()] = new


class LoopBuilder:
    """The loop function of one node under construction.

    `buffers` are the node's inputs and outputs by value name, in the order of the function's
    parameters; `constants` are its literal and static operands. The nest is the same for every
    target: a number that depends on the machine is a `choice`, which the scheduling rule sets.
    """

    def __init__(
        self,
        node: Node,
        buffers: Mapping[str, Buffer],
        constants: Mapping[str, Array],
    ) -> None:
        self._node = node
        self._params = dict(buffers)
        self._seen: set[str] = set()  # Parameters whose shape is fixed.
        self._constants = constants
        self._taken = {buffer.name for buffer in buffers.values()}
        self._suites: list[list[Stmt | Buffer]] = [[]]
        self._choices: list[Symbol] = []

    def function(self, name: str, dims: tuple[Symbol, ...]) -> Function:
        """Return the statements so far as a kernel of that name; `dims` are the symbols in it."""
        params = tuple(self._params.values())
        return Function(name, params, self._close(), dims, choices=tuple(self._choices))

    def choice(self, name: str, most: Extent) -> Extent:
        """Return a symbol that stands for a number in [1, `most`], which the scheduling rule
        chooses for the machine. The results must not depend on it. Examples are the number of
        chunks of an independent loop, and the number of values that an iteration holds in
        registers."""
        name, highest = self._unique(name), max(min(bounds(most)[1], MOST_CHOSEN), 1)
        # The interpreter of nests takes two, the least at which a wrong nest differs.
        chosen = dim.dim(name, 1, highest, 2)
        if not isinstance(chosen, int):
            self._choices += dim.symbols((chosen,))
        return chosen

    # Operands -------------------------------------------------------------------------------------

    def input(self, position: int, shape: Shape | None = None) -> Tensor:
        """Return the node's input at `position`; raises CompilerError if it is omitted."""
        tensor = self.optional(position, shape)
        if tensor is None:
            raise CompilerError(f"{self._node.op}: input {position} is omitted")
        return tensor

    def optional(self, position: int, shape: Shape | None = None) -> Tensor | None:
        """Return the node's input at `position`, None if it is omitted."""
        value = self._node.inputs[position] if position < len(self._node.inputs) else None
        if value is None:
            return None
        if value.name in self._params:
            return self._param(value.name, shape)
        data = self._constants.get(value.name)
        if data is None or data.size != 1:
            raise CompilerError(f"{self._node.op}: input {position} is neither buffer nor literal")
        literal = number(data.reshape(-1)[0].item(), value.type.dtype)
        shape = value.type.shape if shape is None else shape
        return Tensor(self, Buffer(value.name, value.type.dtype, ()), shape, literal)

    def known(self, position: int) -> int | float | None:
        """Return the value of a literal operand; None if it is omitted or a buffer."""
        value = self._node.inputs[position] if position < len(self._node.inputs) else None
        data = self._constants.get(value.name) if value is not None else None
        return None if data is None else data.reshape(-1)[0].item()

    def shape(self, position: int) -> tuple[Extent, ...]:
        """Return the shape of the node's input at `position`."""
        value = self._node.inputs[position]
        assert value is not None
        return value.type.shape

    def output(self, position: int = 0, shape: Shape | None = None) -> Tensor:
        """Return the node's output at `position`."""
        return self._param(self._node.outputs[position].name, shape)

    def static(self, position: int) -> tuple[int, ...]:
        """Return a static operand (a constant when compiling) as integers; () if the node omits
        it."""
        return tuple(map(dim.number, self.extents(position)))

    def extents(self, position: int) -> tuple[Extent, ...]:
        """Return a static operand as numbers and symbolic dims; () if the node omits it."""
        value = self._node.inputs[position] if position < len(self._node.inputs) else None
        return () if value is None else to_extents(self._constants[value.name])

    def _param(self, name: str, shape: Shape | None) -> Tensor:
        """Return the tensor of an input or output, indexed with `shape`. The first call for a
        buffer also decides the shape of the kernel's parameter."""
        buffer = self._params[name]
        wanted = buffer.shape if shape is None else tuple(shape)
        if name not in self._seen:
            buffer = Buffer(buffer.name, buffer.dtype, wanted, None, buffer.scope)
            self._params[name] = buffer
            self._seen.add(name)
        return Tensor(self, buffer, wanted)

    # Memory ---------------------------------------------------------------------------------------

    def local(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """Allocate uninitialized memory, which exists until the end of the block. Each thread has
        its own."""
        return self._allocate(name, shape, dtype, MemoryScope.LOCAL)

    def shared(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """Allocate uninitialized memory, which exists until the end of the block. All threads share
        it."""
        return self._allocate(name, shape, dtype, MemoryScope.WORKSPACE)

    def registers(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """Allocate registers until the end of the block. All indices must be constant after loops
        are unrolled."""
        return self._allocate(name, shape, dtype, MemoryScope.REGISTER)

    def variable(self, initial: Scalar, name: str = "v") -> Variable:
        """Allocate a scalar in a register until the end of the block."""
        variable = Variable(self.registers(name, (), initial.dtype))
        variable.value = initial
        return variable

    def let(self, value: Scalar, name: str = "v") -> Scalar:
        """Compute `value` once, store it in a register, and return a Scalar that reads the
        register."""
        return self.variable(value, name).value

    def _allocate(self, name: str, shape: Shape, dtype: DType, scope: MemoryScope) -> Tensor:
        buffer = Buffer(self._unique(name), dtype, tuple(shape), None, scope)
        self._suites[-1].append(buffer)
        return Tensor(self, buffer, buffer.shape)

    @staticmethod
    def unravel(flat: Scalar, shape: Shape) -> tuple[Scalar, ...]:
        """Return the indices of the element `flat` of a row-major tensor of `shape`."""
        return tuple(map(scalar, _unravel(flat.expr, shape)))

    # Statements -----------------------------------------------------------------------------------

    def append(self, stmt: Stmt) -> None:
        """Add a statement at the end of the open block."""
        self._suites[-1].append(stmt)

    @contextlib.contextmanager
    def for_(self, extent: Extent, name: str = "i") -> Iterator[Scalar]:
        """Run the block for each of 0, 1, …, `extent` - 1, in order."""
        with self._loop(extent, LoopKind.SERIAL, name) as var:
            yield var

    @contextlib.contextmanager
    def unrolled(self, extent: Extent, name: str = "u") -> Iterator[Scalar]:
        """Like `for_`, a loop over [0, extent), but with a copy of the body for each iteration."""
        with self._loop(extent, LoopKind.UNROLLED, name) as var:
            yield var

    @contextlib.contextmanager
    def independent(self, extent: Extent, name: str = "i") -> Iterator[Scalar]:
        """Run the block as `for_` does, but in any order or in parallel. It is for loops whose
        iterations write distinct elements by the operator's definition; for other loops a proof of
        independence is attempted when it is needed."""
        with self._loop(extent, LoopKind.INDEPENDENT, name) as var:
            yield var

    @contextlib.contextmanager
    def points(self, shape: Shape, name: str = "i") -> Iterator[tuple[Scalar, ...]]:
        """Run the block for all index tuples of `shape`, in row-major order, as nested loops."""
        with contextlib.ExitStack() as stack:
            yield tuple(stack.enter_context(self.for_(extent, name)) for extent in shape)

    @contextlib.contextmanager
    def _loop(self, extent: Extent, kind: LoopKind, name: str) -> Iterator[Scalar]:
        var = self._unique(name)
        self._suites.append([])
        yield scalar(Var(var))
        self.append(For(var, extent, kind, self._close()))

    @contextlib.contextmanager
    def if_(self, condition: Scalar) -> Iterator[None]:
        """Run the block if the condition holds."""
        self._suites.append([])
        yield
        self.append(If(condition.expr, self._close()))

    @contextlib.contextmanager
    def else_(self) -> Iterator[None]:
        """Run the block if the condition of the `if_` just before does not hold."""
        last = self._suites[-1].pop()
        if not isinstance(last, If) or last.otherwise is not None:
            raise CompilerError("else_ must follow if_")
        self._suites.append([])
        yield
        self.append(If(last.condition, last.then, self._close()))

    @contextlib.contextmanager
    def while_(self, condition: Scalar) -> Iterator[None]:
        """Run the block while the condition holds, which is tested before each iteration."""
        self._suites.append([])
        yield
        self.append(While(condition.expr, self._close()))

    def _close(self) -> Stmt:
        """End the open block and return its statements. Each allocation becomes a statement that
        contains the statements after it."""
        stmts: list[Stmt] = []
        for item in reversed(self._suites.pop()):
            stmts = [Alloc(item, _block(stmts))] if isinstance(item, Buffer) else [item, *stmts]
        return _block(stmts)

    def _unique(self, hint: str) -> str:
        name, count = hint, 0
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._taken.add(name)
        return name


def _block(statements: list[Stmt]) -> Stmt:
    return statements[0] if len(statements) == 1 else Block(tuple(statements))


def _index(at: Index) -> Expr:
    return at.expr if isinstance(at, Scalar) else e.index(at)


def _unravel(flat: Expr, shape: Shape) -> tuple[Expr, ...]:
    """Return the indices of the element `flat` of a row-major tensor."""
    indices: list[Expr] = []
    for axis, extent in enumerate(shape):
        inner = maximum(product(shape[axis + 1 :]), 1)
        part = e.floordiv(flat, inner)
        indices.append(e.mod(part, maximum(extent, 1)) if axis else part)
    return tuple(indices)
