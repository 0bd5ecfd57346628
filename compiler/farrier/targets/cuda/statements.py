"""The emission of a thread's statements as instructions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from farrier.ir import instr
from farrier.ir.affine import Simplifier
from farrier.ir.dim import bounds, number
from farrier.ir.expr import Buffer, Expr, MemoryScope
from farrier.ir.instr import PTR, Carried, Loop, Operand
from farrier.ir.loop import (
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Intrinsic,
    LoopKind,
    Prefetch,
    Stmt,
    Store,
    While,
)
from farrier.ir.shared_bytes import shares_bytes
from farrier.ir.statements import below
from farrier.ir.threads import is_fetch
from farrier.targets.cuda.expressions import Expressions
from farrier.targets.cuda.fetches import Fetches
from farrier.targets.cuda.fragments import Fragments
from farrier.targets.cuda.warpgroups import Warpgroups
from farrier.targets.gpu.inexpressible import InexpressibleError
from farrier.targets.llvm.arithmetic import cast, to_memory
from farrier.targets.llvm.builder import Builder

# Loops with at most this number of statements in all iterations are unrolled here; LLVM decides for
# longer ones.
_UNROLLED = 1024
_BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"
_OF_WARP = "llvm.nvvm.bar.warp.sync"


class Statements:
    """The emitter of statements. `bases` are the pointers to buffers by name."""

    def __init__(self, builder: Builder, simplifier: Simplifier) -> None:
        self._b = builder
        self.bases: dict[str, Operand] = {}
        self.expressions = Expressions(builder, simplifier, lambda buffer: self.bases[buffer.name])
        self.indices = self.expressions.indices
        self._fragments = Fragments(builder, self.expressions)
        self._warpgroups = Warpgroups(builder, self.expressions)

    def fetch(self, body: Stmt, params: Iterable[Buffer]) -> Fetches:
        """Return the emitter of the copies that `body` starts for whole blocks."""
        self._fetches = Fetches(self._b, self.expressions, body, params)
        return self._fetches

    def write(self, stmt: Stmt) -> None:
        """Emit a statement. Raises InexpressibleError."""
        match stmt:
            case Block(statements):
                for part in statements:
                    self.write(part)
            case For():
                self._for(stmt)
            case Alloc(buffer, body) if buffer.scope is MemoryScope.SUBGROUP:
                self._fragments.allocate(buffer)
                self.write(body)
            case Alloc(buffer, body) if buffer.scope is MemoryScope.WARPGROUP:
                self._warpgroups.allocate(buffer)
                self.write(body)
            case Alloc(buffer, body):
                self.bases[buffer.name] = self._stack(buffer)
                self.write(body)
            case Store():
                self._store(stmt)
            case If(condition, Intrinsic() as copy, Intrinsic() as clear) if (
                self._fragments.are_choices(copy, clear)
            ):
                holds = self.expressions.evaluate(condition).operand
                target, source = copy.operands
                self._fragments.copy(target, source, holds)
            case If(condition, then, otherwise):
                self._if(condition, then, otherwise)
            case While(condition, body):
                self._while(condition, body)
            case Prefetch():
                pass
            case Barrier(MemoryScope.WARPGROUP, None):
                self._warpgroups.order()
            case Barrier(MemoryScope.WARPGROUP, int(products)):
                self._warpgroups.wait(products)
            case Barrier(scope, copies, publishes):
                if copies is not None:
                    self._fragments.wait(copies)
                    if self._fetches.maps:
                        self._fetches.wait(copies)
                if publishes:
                    self._warpgroups.publish()
                if scope is MemoryScope.LOCAL:
                    return
                if scope is MemoryScope.SUBGROUP:
                    self._b.effect(_OF_WARP, instr.VOID, instr.number_of(instr.I32, -1))
                    return
                self._b.effect(_BARRIER, instr.VOID, instr.number_of(instr.I32, 0))
            case Intrinsic(name, (target, source)) if is_fetch(name):
                self._fetches.copy(name, target, source)
            case Intrinsic(name, operands) if name in self._warpgroups.writers:
                self._warpgroups.writers[name](*operands)
            case Intrinsic():
                self._fragments.write(stmt)
            case _:
                assert_never(stmt)

    def _stack(self, buffer: Buffer) -> Operand:
        nbytes = max(1, number(buffer.nbytes))
        # The name makes buffers of one size different instructions.
        return self._b.hoisted(0, instr.STACK, PTR, (), (nbytes, buffer.name))

    def _store(self, stmt: Store) -> None:
        buffer = stmt.buffer
        if shares_bytes(buffer):
            raise InexpressibleError(f"several threads may write the bytes of {buffer.name}")
        value = cast(self._b, buffer.dtype, self.expressions.evaluate(stmt.value))
        kept = to_memory(self._b, value)
        address = self.expressions.address(buffer, stmt.indices)
        alignment = self.expressions.alignment(buffer, stmt.indices)
        self._b.store(kept, address, alignment)

    # -- loops

    def _for(self, loop: For) -> None:
        if loop.extent == 0:
            return
        if loop.kind is LoopKind.UNROLLED and _unrolled_size(loop) <= _UNROLLED:
            for value in range(number(loop.extent)):
                self.indices.constants[loop.var] = value
                self.write(loop.body)
            del self.indices.constants[loop.var]
        elif bounds(loop.extent)[0] >= 1:
            self._loop(loop)
        else:
            runs = self._b.icmp("sgt", self.indices.size(loop.extent), instr.index(0))
            with self._b.only_if(runs):
                self._loop(loop)

    def _loop(self, loop: For) -> None:
        """Emit a loop that has at least one iteration."""
        b, (kind, end) = self._b, self.indices.counted(loop.extent)
        counter = b.variable(kind, "i")
        self.indices.variables[loop.var] = counter
        with b.nested() as body:
            self.write(loop.body)
            following = b.pure(instr.ADD, kind, (counter, instr.number_of(kind, 1)), "nsw")
            again = b.icmp("slt", following, end)
        del self.indices.variables[loop.var]
        first = instr.number_of(kind, 0)
        b.body.append(Loop([Carried(counter, first, following)], body, again, b.labels(2)))

    def _while(self, condition: Expr, body: Stmt) -> None:
        b = self._b
        with b.nested() as test:
            holds = self.expressions.evaluate(condition).operand
        with b.nested() as inside:
            self.write(body)
        b.body.append(instr.While([], test, holds, inside, b.labels(3)))

    def _if(self, condition: Expr, then: Stmt, otherwise: Stmt | None) -> None:
        b = self._b
        holds = self.expressions.evaluate(condition).operand
        with b.nested() as taken:
            self.write(then)
        with b.nested() as passed:
            if otherwise is not None:
                self.write(otherwise)
        b.branch(holds, taken, passed)


def _unrolled_size(stmt: Stmt) -> int:
    """Return the number of statements once all unrolled loops are written out."""
    size = sum(map(_unrolled_size, below(stmt))) or 1
    if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
        size *= number(stmt.extent)
    return size
