"""Write a kernel as a loop nest, for an operator that is no tensor expression.

The `nest` rule of such an operator is Python that reads as the kernel does: loops, conditions and
allocations are `with` blocks, elements are read and stored by indexing, formulas are Scalars.

    x, y = nest.input(0), nest.output(0)
    with nest.for_(x.shape[0]) as row:
        total = nest.variable(number(0, x.dtype), "total")
        with nest.for_(x.shape[1]) as i:
            with nest.if_(x[row, i] > 0):
                total.value += x[row, i]
            y[row, i] = total.value

A Scalar is a formula, evaluated where it is stored or tested: `nest.let` keeps a value that a later
store would change. Both sides of `both` and `either` are evaluated; `guarded` tests in order.
A nest knows no target and no threads: it is plain loops, and the rule that schedules it finds those
that threads may share and those that may be vectors. Nobody checks what it marks as independent.
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

MOST_CHOSEN = 1024  # As many as the most threads that a kernel may have.


class Tensor:
    """A buffer, seen in `shape`: that of its value, or another with the same row-major order.

    `t[i, j]` is an element as a formula; `t[i, j] = value` stores one where the nest is now.
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
        """Elements in all."""
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
        given = tuple(map(_index, at if isinstance(at, tuple) else (at,)))
        if len(given) != self.rank:
            raise CompilerError(f"{len(given)} indices for {self._buffer.name}{list(self.shape)}")
        if self.shape == self._buffer.shape:
            return given
        flat: Expr = e.index(0)
        for index, extent in zip(given, self.shape, strict=True):
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
    parameters; `constants` its literal and static operands. The nest is the same for every target:
    what depends on the machine is a `choice`, which the rule that schedules the nest sets.
    """

    def __init__(
        self,
        node: Node,
        buffers: Mapping[str, Buffer],
        constants: Mapping[str, Array],
    ) -> None:
        self._node = node
        self._params = dict(buffers)
        self._seen: set[str] = set()  # parameters whose shape is settled
        self._constants = constants
        self._taken = {buffer.name for buffer in buffers.values()}
        self._suites: list[list[Stmt | Buffer]] = [[]]
        self._choices: list[Symbol] = []

    def function(self, name: str, dims: tuple[Symbol, ...]) -> Function:
        """What was written, as a kernel of that name; `dims` are the symbols in it."""
        params = tuple(self._params.values())
        return Function(name, params, self._close(), dims, choices=tuple(self._choices))

    def choice(self, name: str, most: Extent) -> Extent:
        """A number from 1 to `most` on which the results do not depend, and which is set for the
        machine: the extent of an independent loop if each of its iterations repeats some work, or
        of registers that an iteration keeps."""
        name, highest = self._unique(name), max(min(bounds(most)[1], MOST_CHOSEN), 1)
        # Two in the interpreter of nests: the least at which a wrong nest differs.
        chosen = dim.dim(name, 1, highest, 2)
        if not isinstance(chosen, int):
            self._choices += dim.symbols((chosen,))
        return chosen

    # Operands -------------------------------------------------------------------------------------

    def input(self, position: int, shape: Shape | None = None) -> Tensor:
        """The node's input at `position`; CompilerError where it is omitted."""
        found = self.optional(position, shape)
        if found is None:
            raise CompilerError(f"{self._node.op}: input {position} is omitted")
        return found

    def optional(self, position: int, shape: Shape | None = None) -> Tensor | None:
        """The node's input at `position`, None where it is omitted."""
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
        """The value of an operand that is a literal; None where it is omitted or a buffer."""
        value = self._node.inputs[position] if position < len(self._node.inputs) else None
        data = self._constants.get(value.name) if value is not None else None
        return None if data is None else data.reshape(-1)[0].item()

    def shape(self, position: int) -> tuple[Extent, ...]:
        """The shape of the node's input at `position`."""
        value = self._node.inputs[position]
        assert value is not None
        return value.type.shape

    def output(self, position: int = 0, shape: Shape | None = None) -> Tensor:
        """The node's output at `position`."""
        return self._param(self._node.outputs[position].name, shape)

    def static(self, position: int) -> tuple[int, ...]:
        """A static operand as integers; () where it is omitted."""
        return tuple(map(dim.number, self.extents(position)))

    def extents(self, position: int) -> tuple[Extent, ...]:
        """A static operand as numbers and dims; () where it is omitted."""
        value = self._node.inputs[position] if position < len(self._node.inputs) else None
        return () if value is None else to_extents(self._constants[value.name])

    def _param(self, name: str, shape: Shape | None) -> Tensor:
        """A parameter: it gets the shape in which it is asked for first."""
        buffer = self._params[name]
        wanted = buffer.shape if shape is None else tuple(shape)
        if name not in self._seen:
            buffer = Buffer(buffer.name, buffer.dtype, wanted, None, buffer.scope)
            self._params[name] = buffer
            self._seen.add(name)
        return Tensor(self, buffer, wanted)

    # Memory ---------------------------------------------------------------------------------------

    def local(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """Memory of this thread, to the end of the block; undefined at first."""
        return self._allocate(name, shape, dtype, MemoryScope.LOCAL)

    def shared(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """Memory that all threads see, to the end of the block; undefined at first."""
        return self._allocate(name, shape, dtype, MemoryScope.WORKSPACE)

    def registers(self, name: str, shape: Shape, dtype: DType) -> Tensor:
        """Values, to the end of the block: every index is constant once loops are unrolled."""
        return self._allocate(name, shape, dtype, MemoryScope.REGISTER)

    def variable(self, initial: Scalar, name: str = "v") -> Variable:
        """A scalar in a register, to the end of the block."""
        made = Variable(self.registers(name, (), initial.dtype))
        made.value = initial
        return made

    def let(self, value: Scalar, name: str = "v") -> Scalar:
        """The value that a formula has here."""
        return self.variable(value, name).value

    def _allocate(self, name: str, shape: Shape, dtype: DType, scope: MemoryScope) -> Tensor:
        buffer = Buffer(self._unique(name), dtype, tuple(shape), None, scope)
        self._suites[-1].append(buffer)
        return Tensor(self, buffer, buffer.shape)

    @staticmethod
    def unravel(flat: Scalar, shape: Shape) -> tuple[Scalar, ...]:
        """The indices of the element `flat` of a row-major tensor of `shape`."""
        return tuple(map(scalar, _unravel(flat.expr, shape)))

    # Statements -----------------------------------------------------------------------------------

    def append(self, stmt: Stmt) -> None:
        """Add a statement at the end of the open block."""
        self._suites[-1].append(stmt)

    @contextlib.contextmanager
    def for_(self, extent: Extent, name: str = "i") -> Iterator[Scalar]:
        """The block once for each of 0, 1, …, `extent` - 1, in order."""
        with self._loop(extent, LoopKind.SERIAL, name) as var:
            yield var

    @contextlib.contextmanager
    def unrolled(self, extent: Extent, name: str = "u") -> Iterator[Scalar]:
        """As `for_`, with a copy of the block for each iteration."""
        with self._loop(extent, LoopKind.UNROLLED, name) as var:
            yield var

    @contextlib.contextmanager
    def independent(self, extent: Extent, name: str = "i") -> Iterator[Scalar]:
        """As `for_`, in any order: for iterations of which only the operator's meaning says that
        they write distinct places. Others are proven independent where that helps."""
        with self._loop(extent, LoopKind.INDEPENDENT, name) as var:
            yield var

    @contextlib.contextmanager
    def points(self, shape: Shape, name: str = "i") -> Iterator[tuple[Scalar, ...]]:
        """Nested loops over all points of `shape`, row-major."""
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
        """The block where the condition holds."""
        self._suites.append([])
        yield
        self.append(If(condition.expr, self._close()))

    @contextlib.contextmanager
    def else_(self) -> Iterator[None]:
        """The block where the condition of the `if_` just before does not hold."""
        last = self._suites[-1].pop()
        if not isinstance(last, If) or last.otherwise is not None:
            raise CompilerError("else_ must follow if_")
        self._suites.append([])
        yield
        self.append(If(last.condition, last.then, self._close()))

    @contextlib.contextmanager
    def while_(self, condition: Scalar) -> Iterator[None]:
        """The block as long as the condition holds, tested before each time."""
        self._suites.append([])
        yield
        self.append(While(condition.expr, self._close()))

    def _close(self) -> Stmt:
        """The statements of the block that ends here, each allocation around what follows it."""
        made: list[Stmt] = []
        for item in reversed(self._suites.pop()):
            made = [Alloc(item, _block(made))] if isinstance(item, Buffer) else [item, *made]
        return _block(made)

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
    """The indices of the element `flat` of a row-major tensor."""
    indices: list[Expr] = []
    for axis, extent in enumerate(shape):
        inner = maximum(product(shape[axis + 1 :]), 1)
        part = e.floordiv(flat, inner)
        indices.append(e.mod(part, maximum(extent, 1)) if axis else part)
    return tuple(indices)
