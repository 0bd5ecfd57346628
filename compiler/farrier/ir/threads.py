"""The launches and phases of a kernel for a device whose threads run in blocks, and the rules for
both forms of such a kernel (see `ir/loop.py`).

A kernel is a sequence of launches, each a nest of block loops, within `alloc`s of workspace
buffers. Within the block loops

- threads run in phases: a phase is a nest of thread loops of constant extent, which contains no
  other block, thread or parallel loop and allocates nothing in `workgroup`. Only phases store or
  prefetch;
- a nest of subgroup or warpgroup loops is a phase too, in which only intrinsics access memory.
  Fragments are buffers in `subgroup` or `warpgroup`: a fragment that is allocated around phases
  exists once per subgroup or warpgroup, its first axes correspond to the loops of the phase, and
  only intrinsics access it. The operand of an intrinsic of subgroups may be a buffer that exists
  once per thread: the axis after the first ones then runs over the threads of the subgroup, and is
  the first axis of the tile;
- phases may stand within serial and unrolled loops, conditions, and allocations. A condition around
  a phase has one value for all threads: it loads nothing that the launch writes;
- a local or register buffer that is allocated around phases exists once per thread: every phase
  that uses it has the same extents, its first axes run over these, and its first indices are the
  variables of the phase;
- an exchange is a phase in which each thread stores to a private element a value that it reads from
  the private element of another thread, whose number within the subgroup differs in one bit: the
  last of the first indices is `t xor m`. The block consists of complete subgroups, and the
  innermost loop of the phase of complete groups of `2 * m` threads;
- a barrier that waits for copies or products may stand between phases. Other barriers occur only
  in a launch that is a single phase, within nothing but allocations. Each barrier must be reached
  by all threads: no condition around it depends on a thread or loads what the launch writes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import assert_never

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, number
from farrier.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    MemoryScope,
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
from farrier.ir.operands import operands
from farrier.ir.printer import print_ir
from farrier.ir.statements import below, walk_stmts
from farrier.ir.types import DType
from farrier.ir.walk import walk

PRIVATE = (MemoryScope.LOCAL, MemoryScope.REGISTER)
SUBGROUP_SIZE = 32  # The number of threads in a subgroup, as in a warp of NVIDIA's GPUs.
WARPGROUP_SIZE = 4 * SUBGROUP_SIZE
# The number of threads that share a fragment, and that run an iteration of a phase together.
FRAGMENTS = {MemoryScope.SUBGROUP: SUBGROUP_SIZE, MemoryScope.WARPGROUP: WARPGROUP_SIZE}
TOGETHER = {LoopKind.SUBGROUP: SUBGROUP_SIZE, LoopKind.WARPGROUP: WARPGROUP_SIZE}
# The buffers of a single thread, subgroup or warpgroup, which no other thread can access.
UNSEEN = (*PRIVATE, *FRAGMENTS)
_FETCH = "fetch_"  # The beginning of the names of copies that one thread starts.
_AROUND_PHASES = (LoopKind.SERIAL, LoopKind.UNROLLED)
_OF_PHASES = (LoopKind.THREAD, *TOGETHER)
_OF_BLOCKS_OR_THREADS = (LoopKind.BLOCK, *_OF_PHASES, LoopKind.PARALLEL)


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """A nest of block loops, outermost first, and the statement that each block runs."""

    blocks: tuple[For, ...]
    body: Stmt

    @property
    def written(self) -> frozenset[str]:
        """The names of the buffers that the launch writes."""
        return frozenset(buffer.name for s in walk_stmts(self.body) for buffer in s.writes)


@dataclasses.dataclass(frozen=True, slots=True)
class LoweredLaunch:
    """The parts of a launch in the lowered form: the buffers that each block allocates (`shared`),
    the nest of thread loops (`threads`), and the statement that each thread runs (`body`). For a
    launch that is still in the form of phases, `threads` is empty."""

    shared: tuple[Buffer, ...]
    threads: tuple[For, ...]
    body: Stmt

    @classmethod
    def of(cls, launch: Launch) -> LoweredLaunch:
        shared, body = [], launch.body
        while isinstance(body, Alloc):
            shared.append(body.buffer)
            body = body.body
        return cls(tuple(shared), *nest_of(body, LoopKind.THREAD))


def nest_of(stmt: Stmt, kind: LoopKind) -> tuple[tuple[For, ...], Stmt]:
    """Return the directly nested loops of kind `kind` at the top of `stmt`, outermost first, and
    the body of the innermost."""
    nest = []
    while isinstance(stmt, For) and stmt.kind is kind:
        nest.append(stmt)
        stmt = stmt.body
    return tuple(nest), stmt


def phase_of(stmt: Stmt) -> tuple[tuple[For, ...], Stmt]:
    """Return the loops over threads or subgroups at the top of `stmt`, outermost first, and their
    body; ((), stmt) if `stmt` is not a phase."""
    if isinstance(stmt, For) and stmt.kind in _OF_PHASES:
        return nest_of(stmt, stmt.kind)
    return (), stmt


def fetch_name(dtype: DType, rows: int) -> str:
    """Return the name of the intrinsic that copies a tile of some rows to workgroup memory, which
    one thread starts for its block."""
    return f"{_FETCH}{dtype.value}_{rows}"


def is_fetch(name: str) -> bool:
    """Check whether an intrinsic copies a tile for a block."""
    return name.startswith(_FETCH)


def exchange_name(dtype: DType, mask: int) -> str:
    """Return the name of the intrinsic with which each thread of a subgroup reads the value of the
    thread whose number differs in the bit `mask`."""
    return f"exchange_{dtype.value}_{mask}"


def exchange_of(nest: tuple[For, ...], body: Stmt) -> int:
    """If a phase is an exchange, return the bit `mask` such that thread t reads the value of thread
    `t xor mask`. Return 0 if it is not an exchange."""
    if not isinstance(body, Store) or not isinstance(body.value, Load):
        return 0
    indices = body.value.indices
    if body.value.buffer.scope not in PRIVATE or len(indices) < len(nest):
        return 0
    thread = indices[len(nest) - 1]
    if not isinstance(thread, Binary) or not isinstance(thread.right, Const):
        return 0
    is_other = thread.op is BinaryOp.BIT_XOR and thread.left == Var(nest[-1].var)
    return int(thread.right.value) if is_other else 0


def threads_of(nest: tuple[For, ...]) -> int:
    """Return the number of threads that run a phase."""
    return math.prod(extents_of(nest)) * TOGETHER.get(nest[0].kind, 1)


def extents_of(nest: tuple[For, ...]) -> tuple[int, ...]:
    """Return the extents, all constant, of the loops of a phase."""
    return tuple(number(loop.extent) for loop in nest)


def launches(function: Function) -> tuple[Launch, ...]:
    """Return the launches of a kernel in order. Raises CompilerError for statements outside of
    launches."""
    return tuple(_launches(function, function.body))


def _launches(function: Function, stmt: Stmt) -> Iterator[Launch]:
    blocks, body = nest_of(stmt, LoopKind.BLOCK)
    if blocks:
        yield Launch(blocks, body)
    elif isinstance(stmt, Block) or _is_workspace(stmt):
        for part in below(stmt):
            yield from _launches(function, part)
    else:
        raise _error(function, "stands in no block loop", stmt)


def _is_workspace(stmt: Stmt) -> bool:
    return isinstance(stmt, Alloc) and stmt.buffer.scope is MemoryScope.WORKSPACE


def phases(stmt: Stmt) -> Iterator[tuple[tuple[For, ...], Stmt]]:
    """Yield the thread or subgroup loops and the body of each phase within `stmt`, in order."""
    nest, body = phase_of(stmt)
    if nest:
        yield nest, body
    else:
        for part in below(stmt):
            yield from phases(part)


def touched(stmt: Stmt) -> Iterator[tuple[Buffer, bool]]:
    """Yield each buffer that `stmt` or a statement within it accesses, and whether the access
    writes."""
    for part in walk_stmts(stmt):
        for buffer in part.writes:
            yield buffer, True
        for buffer in part.reads:
            yield buffer, False
        for operand in operands(part):
            for node in walk(operand):
                if isinstance(node, Load):
                    yield node.buffer, False


def verify_threads(function: Function) -> None:
    """Raise CompilerError, which shows the statement, if a kernel violates a rule in the docstring
    of this module."""
    for launch in launches(function):
        _Checker(function, launch).check()


def _error(function: Function, message: str, stmt: Stmt) -> CompilerError:
    return CompilerError(f"kernel {function.name}: {message}\n{print_ir(stmt)}")


class _Checker:
    def __init__(self, function: Function, launch: Launch) -> None:
        self._function = function
        self._launch = launch
        self._written = launch.written
        self._private: dict[
            str, Buffer
        ] = {}  # The private buffers that are allocated around phases.
        self._extents: dict[
            str, tuple[Extent, ...]
        ] = {}  # The extents of the phases that use a private buffer.

    def check(self) -> None:
        self._is_lowered = bool(LoweredLaunch.of(self._launch).threads)
        self._around_phases(self._launch.body)

    def _fail(self, message: str, stmt: Stmt) -> CompilerError:
        return _error(self._function, message, stmt)

    def _around_phases(self, stmt: Stmt) -> None:
        nest, body = phase_of(stmt)
        if nest:
            self._phase(nest, body)
            return
        match stmt:
            case Block():
                pass
            case For(var, _, kind, _):
                if kind not in _AROUND_PHASES:
                    raise self._fail(f"the {kind} loop {var} stands around thread loops", stmt)
            case Alloc(buffer, _):
                if buffer.scope is MemoryScope.WORKSPACE:
                    raise self._fail(f"a block allocates the workspace {buffer.name}", stmt)
                if buffer.scope in UNSEEN:
                    self._private[buffer.name] = buffer
            case If(condition, _, _) | While(condition, _):
                if (name := self._varying(condition, ())) is not None:
                    raise self._fail(
                        f"a condition around phases depends on {name}, which the launch writes",
                        stmt,
                    )
            case Store() | Prefetch() | Intrinsic():
                raise self._fail("no thread loop says which thread runs this", stmt)
            case Barrier(_, copies) if copies is not None:
                pass
            case Barrier():
                raise self._fail("a barrier stands outside the thread loops", stmt)
            case _:
                assert_never(stmt)
        for part in below(stmt):
            self._around_phases(part)

    def _phase(self, nest: tuple[For, ...], body: Stmt) -> None:
        names = tuple(loop.var for loop in nest)
        if mask := exchange_of(nest, body):
            assert isinstance(body, Store)
            self._exchange(mask, nest, body)
            return
        for stmt in walk_stmts(body):
            if isinstance(stmt, For) and stmt.kind in _OF_BLOCKS_OR_THREADS:
                raise self._fail(f"the {stmt.kind} loop {stmt.var} stands within a phase", stmt)
            if nest[0].kind in TOGETHER and isinstance(stmt, Store | Prefetch):
                raise self._fail(f"no loop says which thread of a {nest[0].kind} runs this", stmt)
            if isinstance(stmt, Alloc) and stmt.buffer.scope is MemoryScope.WORKGROUP:
                raise self._fail(f"one thread allocates {stmt.buffer.name} for its block", stmt)
            for buffer, indices in _elements(stmt):
                if buffer.scope in FRAGMENTS and not isinstance(stmt, Intrinsic):
                    raise self._fail(f"{buffer.name} is a fragment: intrinsics touch it", stmt)
                if buffer.name in self._private:
                    self._own(buffer, indices, nest, stmt)
        self._barriers(body, names, None)

    def _exchange(self, mask: int, nest: tuple[For, ...], store: Store) -> None:
        """Check that a phase is a valid exchange of private elements, in which thread t reads the
        element of thread `t xor mask`."""
        source = store.value
        assert isinstance(source, Load)
        if mask & (mask - 1) or mask >= SUBGROUP_SIZE or number(nest[-1].extent) % (2 * mask):
            raise self._fail(f"threads that differ by {mask} are not all of one subgroup", store)
        if threads_of(nest) % SUBGROUP_SIZE or nest[0].kind is not LoopKind.THREAD:
            raise self._fail(f"{threads_of(nest)} threads are no whole subgroups", store)
        rest = (*store.indices[len(nest) :], *source.indices[len(nest) :])
        if not all(isinstance(index, Const) for index in rest) or store.buffer == source.buffer:
            raise self._fail("threads exchange one element of their own to another", store)
        mine = (*map(Var, (loop.var for loop in nest)), *source.indices[len(nest) :])
        for buffer, indices in (store.buffer, store.indices), (source.buffer, mine):
            if buffer.name not in self._private:
                raise self._fail(f"{buffer.name} is not each thread's own", store)
            self._own(buffer, indices, nest, store)

    def _own(
        self, buffer: Buffer, indices: tuple[Expr, ...], nest: tuple[For, ...], stmt: Stmt
    ) -> None:
        names = tuple(loop.var for loop in nest)
        extents = tuple(loop.extent for loop in nest)
        leading = indices[: len(nest)]
        if buffer.scope in PRIVATE and nest[0].kind is LoopKind.SUBGROUP:
            extents = (*extents, SUBGROUP_SIZE)
            if indices[len(nest)] != Const(0, DType.I64):
                raise self._fail(f"{buffer.name} is not of all threads of a subgroup", stmt)
        if leading != tuple(map(Var, names)):
            owner = "thread" if buffer.scope in PRIVATE else buffer.scope
            raise self._fail(
                f"{buffer.name} is each {owner}'s own: index it by {names} first", stmt
            )
        if buffer.shape[: len(extents)] != extents:
            raise self._fail(f"{buffer.name} has no part for each of {extents} iterations", stmt)
        if self._extents.setdefault(buffer.name, extents) != extents:
            raise self._fail(f"phases of other threads use {buffer.name}", stmt)

    def _barriers(self, stmt: Stmt, threads: tuple[str, ...], around: str | None) -> None:
        """Check the barriers within `stmt`; `around` is the name of something that differs between
        threads and on which a condition around `stmt` depends, or None."""
        if isinstance(stmt, Barrier):
            if not self._is_lowered:
                raise self._fail("a phase has a barrier within it", stmt)
            if around is not None:
                raise self._fail(f"threads that differ in {around} do not all come here", stmt)
        if isinstance(stmt, If | While) and around is None:
            around = self._varying(stmt.condition, threads)
        for part in below(stmt):
            self._barriers(part, threads, around)

    def _varying(self, condition: Expr, threads: tuple[str, ...]) -> str | None:
        """Return a name in the condition whose value may differ between threads, or None."""
        for node in walk(condition):
            if isinstance(node, Var) and node.name in threads:
                return node.name
            if isinstance(node, Load) and (
                node.buffer.name in self._written or node.buffer.scope in UNSEEN
            ):
                return node.buffer.name
        return None


def _elements(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...]]]:
    """Yield the buffer and the indices of each element that a statement itself refers to."""
    if isinstance(stmt, Store | Prefetch):
        yield stmt.buffer, stmt.indices
    if isinstance(stmt, Intrinsic):
        for tile in stmt.operands:
            yield tile.buffer, tile.origin
    for part in operands(stmt):
        for node in walk(part):
            if isinstance(node, Load):
                yield node.buffer, node.indices
