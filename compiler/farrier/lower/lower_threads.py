"""Merge the phases of a launch into one nest of thread loops, with barriers between them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TypeAlias, assert_never

from farrier.ir.affine import Simplifier
from farrier.ir.dim import number
from farrier.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Load, MemoryScope, Select, Var
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
    Tile,
    While,
)
from farrier.ir.operands import operands
from farrier.ir.statements import block, map_children, walk_stmts
from farrier.ir.substitute import Substitution, loads
from farrier.ir.threads import (
    PRIVATE,
    TOGETHER,
    UNSEEN,
    Launch,
    exchange_name,
    exchange_of,
    extents_of,
    launches,
    phase_of,
    phases,
    threads_of,
    touched,
)
from farrier.ir.types import DType
from farrier.ir.walk import walk


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """The slice of a buffer that the first index selects, such as the half of a double buffer.

    The index is `(sum of coefficient * variable + const) mod modulus` over the variables of loops
    around phases, which `terms` lists with their coefficients. The modulus is the extent of the
    axis if the index has no remainder.
    """

    terms: frozenset[tuple[str, int]]
    const: int
    modulus: int

    def is_apart(self, other: _Part) -> bool:
        same = self.terms == other.terms and self.modulus == other.modulus
        return same and self.const != other.const

    def in_previous_iteration(self, var: str) -> _Part:
        """Return the slice that the same access selected in the previous iteration of the loop over
        `var`, expressed in the value that `var` has in the current iteration."""
        const = self.const - dict(self.terms).get(var, 0)
        return dataclasses.replace(self, const=const % self.modulus)


@dataclasses.dataclass(frozen=True, slots=True)
class _Owner:
    """The thread that accesses an element, as a function of the element's indices.

    Variable i of a nest of thread loops is `(indices[axis] - const) mod extent`, where `digits[i]`
    is `(axis, const)` and `extents[i]` the extent; a loop with a single iteration has no digit.
    """

    extents: tuple[int, ...]
    digits: tuple[tuple[int, int] | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Access:
    """An access that other threads may observe. `part` is the slice of the buffer that is accessed,
    or None if it is not known. `owner` states which thread accesses which element, or is None if
    several threads may access the same one. The other fields are the buffer, whether the access
    writes, and whether only the first thread of the block performs it."""

    name: str
    writes: bool
    is_first: bool
    part: _Part | None
    owner: _Owner | None = None

    def clashes(self, other: _Access) -> bool:
        """Check whether two accesses need a barrier between them: they may access the same element,
        and at least one of them writes it."""
        if self.name != other.name or not (self.writes or other.writes):
            return False
        if self.is_first and other.is_first:
            return False
        if self.owner is not None and self.owner == other.owner:
            return False  # Each thread accesses its own elements.
        return not (self.part and other.part and self.part.is_apart(other.part))

    def after_turn(self, var: str) -> _Access:
        part = None if self.part is None else self.part.in_previous_iteration(var)
        return dataclasses.replace(self, part=part)

    def after_loop(self, var: str) -> _Access:
        """Return the access as seen after the loop over `var`, where a slice that depends on `var`
        is unknown."""
        is_known = self.part is not None and var not in dict(self.part.terms)
        return self if is_known else dataclasses.replace(self, part=None)


# The accesses since the last barrier, and `_APART` if threads have run alone since: those of a
# subgroup may be at different statements then.
Pending: TypeAlias = frozenset[_Access]
_APART = _Access("", writes=False, is_first=False, part=None)


def lower_threads(function: Function) -> Function:
    """Merge the phases of each launch into one nest of thread loops.

    A barrier is placed before a phase if it accesses memory that another phase may have accessed
    since the last barrier, and at least one of the two accesses is a write. Elements that the same
    thread accesses in both phases need none. A phase with fewer
    threads than others becomes conditional.

    before:
        @function
        def reverse(a: f32[16], b: f32[16]):
            for i in block(4):
                with alloc(f32[4] in workgroup) as tile:
                    for j in thread(4):
                        tile[j] = a[4 * i + j]
                    for k in thread(4):
                        b[4 * i + k] = tile[3 - k]
    after:
        @function
        def reverse(a: f32[16], b: f32[16]):
            for i in block(4):
                with alloc(f32[4] in workgroup) as tile:
                    for j in thread(4):
                        tile[j] = a[4 * i + j]
                        barrier(workgroup)
                        b[4 * i + j] = tile[3 - j]

    Before a phase of subgroups that follows a phase of threads without such a barrier, the threads
    of each subgroup are synchronized. Before asynchronous products, a warpgroup's accesses to its
    fragments are ordered, and a barrier publishes the factors that threads have stored. The buffers
    of each thread or subgroup lose the axes that run over threads or subgroups. If phases differ in
    shape, they share one loop over all threads of the block, from which their variables are
    computed: those of a phase of subgroups from the number of the thread's subgroup.
    """
    body = function.body
    for launch in launches(function):
        if any(isinstance(s, Barrier) and s.copies is None for s in walk_stmts(launch.body)):
            continue  # The launch is in the lowered form already.
        lowered = _Launch(launch).lowered()
        if lowered != launch.body:
            body = _replaced(body, launch, lowered)
    return function if body is function.body else dataclasses.replace(function, body=body)


def _replaced(stmt: Stmt, launch: Launch, new: Stmt) -> Stmt:
    """Return the statement in which the body of the block loops of `launch` is replaced by
    `new`."""
    if stmt is launch.body:
        return new
    return map_children(stmt, lambda part: _replaced(part, launch, new))


class _Launch:
    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        nests = [nest for nest, _ in phases(launch.body)]
        self._written = launch.written
        self._taken = {s.var for s in walk_stmts(launch.body) if isinstance(s, For)}
        shapes = {(nest[0].kind, extents_of(nest)) for nest in nests}
        if len(shapes) == 1 and nests[0][0].kind is LoopKind.THREAD:
            self._threads = [(loop.var, loop.extent) for loop in nests[0]]
        else:
            most = max(map(threads_of, nests), default=1)
            self._threads = [(self._fresh("t"), most)]
        self._shared: list[Buffer] = []
        self._private: list[Buffer] = []
        self._own: dict[str, Buffer] = {}
        self._around: set[str] = set()  # The variables of loops around phases.

    def _fresh(self, name: str) -> str:
        number = 0
        while name in self._taken:
            number += 1
            name = f"t_{number}"
        return name

    def lowered(self) -> Stmt:
        self._allocate(self._launch.body)
        body, _ = self._stmt(self._launch.body, frozenset())
        for buffer in reversed(self._private):
            body = Alloc(buffer, body)
        for name, extent in reversed(self._threads):
            body = For(name, extent, LoopKind.THREAD, body)
        for buffer in reversed(self._shared):
            body = Alloc(buffer, body)
        return body

    def _allocate(self, stmt: Stmt) -> None:
        """Record the buffers that `stmt` allocates around phases: the buffers that all threads
        share, and the buffers that each thread or subgroup has for itself."""
        ranks = {
            buffer.name: _dropped(buffer, nest)
            for nest, body in phases(stmt)
            for buffer, _ in touched(body)
        }
        inside = {
            s.buffer.name
            for _, body in phases(stmt)
            for s in walk_stmts(body)
            if isinstance(s, Alloc)
        }
        for node in walk_stmts(stmt):
            if not isinstance(node, Alloc) or node.buffer.name in inside:
                continue
            buffer = node.buffer
            if buffer.scope in UNSEEN:
                assert buffer.layout is None, "such a buffer lies row after row"
                own = dataclasses.replace(buffer, shape=buffer.shape[ranks.get(buffer.name, 0) :])
                self._own[buffer.name] = own
                self._private.append(own)
            else:
                self._shared.append(buffer)

    def _stmt(self, stmt: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """Return the statement as each thread runs it, and the accesses since the last barrier
        after it. `pending` are the accesses since the last barrier before it."""
        nest, body = phase_of(stmt)
        if nest:
            return self._phase(nest, body, pending)
        match stmt:
            case Block(statements):
                parts = []
                for part in statements:
                    lowered, pending = self._stmt(part, pending)
                    parts.append(lowered)
                return block(parts), pending
            case Alloc(_, inner):
                return self._stmt(inner, pending)
            case If(condition, then, otherwise):
                taken, after = self._stmt(then, pending)
                if otherwise is None:
                    return If(condition, taken), after | pending
                passed, other = self._stmt(otherwise, pending)
                return If(condition, taken, passed), after | other
            case For(var, _, _, inner):
                lowered, pending = self._loop(inner, pending, var)
                return map_children(stmt, lambda _: lowered), pending
            case While(_, inner):
                lowered, pending = self._loop(inner, pending, "")
                return map_children(stmt, lambda _: lowered), pending
            case Barrier(scope, copies) if copies is not None:
                is_met = scope is MemoryScope.WORKGROUP
                names = self._names_shared() | {_APART.name} if is_met else frozenset()
                return stmt, frozenset(access for access in pending if access.name not in names)
            case Store() | Prefetch() | Intrinsic() | Barrier():
                raise AssertionError(f"{stmt} stands outside of all phases")
            case _:
                assert_never(stmt)

    def _loop(self, body: Stmt, pending: Pending, var: str) -> tuple[Stmt, Pending]:
        """Return the lowered body of a loop and the accesses since the last barrier after the loop.

        The body is lowered as if it came after itself, because the accesses of one iteration may
        conflict with those of the next. The loop is lowered as if it might run zero times.
        """
        before = pending
        while True:
            self._around.add(var)
            lowered, after = self._stmt(body, before)
            self._around.discard(var)
            after = frozenset(access.after_turn(var) for access in after)
            if after <= before:
                return lowered, frozenset(access.after_loop(var) for access in before)
            before |= after

    def _phase(self, nest: tuple[For, ...], body: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        is_first = threads_of(nest) == 1
        accesses = frozenset(
            _Access(buffer.name, writes, is_first, self._part(buffer, indices), owner)
            for buffer, indices, writes, is_element in _touches(body)
            if self._is_seen(buffer)
            for owner in (_owner(nest, indices) if is_element else None,)
        )
        # The results of asynchronous copies become visible at the barrier that waits for them.
        left_behind = {stmt.buffer.name for stmt in walk_stmts(body) if isinstance(stmt, Store)}
        begun = _copied(body) - left_behind
        scopes = {buffer.name: buffer.scope for buffer, *_ in _touches(body)}
        clashes = {
            scopes[access.name]
            for access in accesses
            if any(access.clashes(other) for other in pending)
        }
        mask = exchange_of(nest, body)
        threads = self._as_threads(nest, _exchange(mask, body) if mask else body)
        accesses = frozenset(each for each in accesses if each.name not in begun)
        is_alone = nest[0].kind is LoopKind.THREAD and not mask and self._may_diverge(nest, body)
        is_together = mask > 0 or nest[0].kind in TOGETHER
        multiplies = _multiplies(body)
        if multiplies:
            threads = block([Barrier(MemoryScope.WARPGROUP), threads])
        if not clashes:
            met = pending - {_APART} if is_together else pending
            if met != pending:
                threads = block([Barrier(MemoryScope.SUBGROUP), threads])
            return threads, met | accesses | ({_APART} if is_alone else frozenset())
        is_workgroup = clashes == {MemoryScope.WORKGROUP}
        scope = MemoryScope.WORKGROUP if is_workgroup else MemoryScope.PARAM
        # A barrier for workgroup buffers leaves the accesses to others as they are.
        shared = self._names_shared() | {_APART.name}
        left = frozenset(p for p in pending if is_workgroup and p.name not in shared)
        left |= {_APART} if is_alone else frozenset()
        return block([Barrier(scope, None, multiplies), threads]), left | accesses

    def _names_shared(self) -> frozenset[str]:
        return frozenset(buffer.name for buffer in self._shared)

    def _part(self, buffer: Buffer, indices: tuple[Expr, ...]) -> _Part | None:
        """Return the slice of a buffer that the first index selects for all threads of the block;
        None if the index has another form."""
        if not indices:
            return None
        index, modulus = indices[0], buffer.shape[0]
        if isinstance(index, Binary) and index.op is BinaryOp.MOD:
            right = index.right
            if not isinstance(right, Const):
                return None
            index, modulus = index.left, int(right.value)
        form = Simplifier({}).linear(index)
        terms: dict[str, int] = {}
        for atom, factor in form.terms.items():
            if not isinstance(atom, Var) or atom.name not in self._around:
                return None
            if not isinstance(factor, int):
                return None
            terms[atom.name] = factor
        if not isinstance(modulus, int) or modulus < 1 or not isinstance(form.const, int):
            return None
        return _Part(frozenset(terms.items()), form.const % modulus, modulus)

    def _may_diverge(self, nest: tuple[For, ...], body: Stmt) -> bool:
        """Check whether the threads of a subgroup may diverge in a phase. They may if not all
        threads of the block take part, or if the phase contains a condition."""
        if threads_of(nest) < math.prod(number(extent) for _, extent in self._threads):
            return True
        return any(
            isinstance(part, If | While)
            or any(isinstance(node, Select) for each in operands(part) for node in walk(each))
            for part in walk_stmts(body)
        )

    def _is_seen(self, buffer: Buffer) -> bool:
        """Check whether the launch writes a buffer that other threads can access."""
        return buffer.scope not in UNSEEN and buffer.name in self._written

    def _as_threads(self, nest: tuple[For, ...], body: Stmt) -> Stmt:
        """Return a phase as the code of a single thread. If not all threads of the block take part
        in the phase, the code is under a condition."""
        extents = extents_of(nest)
        variables: dict[str, Expr] = {}
        condition: Expr | None = None
        each = TOGETHER.get(nest[0].kind, 1)
        if each == 1 and tuple(number for _, number in self._threads) == extents:
            for loop, (name, _) in zip(nest, self._threads, strict=True):
                variables[loop.var] = Var(name)
        else:
            ((thread, most),) = self._threads
            inner = each
            for loop, extent in zip(reversed(nest), reversed(extents), strict=True):
                # The condition below keeps the digit of the outermost loop within its extent.
                variables[loop.var] = _digit(Var(thread), inner, extent, loop is nest[0])
                inner *= extent
            if inner != most:
                condition = Binary(BinaryOp.LT, Var(thread), _index(inner))

        def access(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return indices[_dropped(buffer, nest) :] if buffer.name in self._own else indices

        lowered = Substitution(variables, self._own, access=access).stmt(
            self._with_own_axes(body, nest)
        )
        return lowered if condition is None else If(condition, lowered)

    def _with_own_axes(self, stmt: Stmt, nest: tuple[For, ...]) -> Stmt:
        """Return the statement in which tiles of buffers that each subgroup or thread owns have
        lost the axes that run over subgroups and threads."""
        if isinstance(stmt, Intrinsic):
            tiles = tuple(
                _without_axes(tile, _dropped(tile.buffer, nest))
                if tile.buffer.name in self._own
                else tile
                for tile in stmt.operands
            )
            return dataclasses.replace(stmt, operands=tiles)
        return map_children(stmt, lambda part: self._with_own_axes(part, nest))


def _dropped(buffer: Buffer, nest: tuple[For, ...]) -> int:
    """Return the number of axes of an own buffer of a phase that run over subgroups or threads."""
    is_of_lanes = nest[0].kind is LoopKind.SUBGROUP and buffer.scope in PRIVATE
    return len(nest) + is_of_lanes


def _without_axes(tile: Tile, dropped: int) -> Tile:
    """Return a tile without its first axes; the indices are dropped with those of all accesses."""
    axes = tuple(axis - dropped for axis in tile.axes if axis >= dropped)
    return dataclasses.replace(tile, axes=axes)


def _exchange(mask: int, store: Stmt) -> Stmt:
    """Return the intrinsic call that is equivalent to a phase in which threads exchange values:
    thread t reads the value of thread `t xor mask`."""
    assert isinstance(store, Store)
    assert isinstance(store.value, Load)
    tiles = Tile(store.buffer, store.indices), Tile(store.value.buffer, store.value.indices)
    return Intrinsic(exchange_name(store.buffer.dtype, mask), tiles)


def _owner(nest: tuple[For, ...], indices: tuple[Expr, ...]) -> _Owner | None:
    """Return which thread of a phase accesses an element; None if several threads may access the
    same one, or if that is not known.

    The index `8 * turn + t` of a loop over 8 threads has the remainder t, since the other terms are
    multiples of the extent.
    """
    if nest[0].kind is not LoopKind.THREAD:
        return None
    forms = [Simplifier({}).linear(index) for index in indices]
    digits: list[tuple[int, int] | None] = []
    for loop, extent in zip(nest, extents_of(nest), strict=True):
        if extent == 1:
            digits.append(None)
            continue
        for axis, form in enumerate(forms):
            others = [factor for atom, factor in form.terms.items() if atom != Var(loop.var)]
            divides = all(isinstance(each, int) and each % extent == 0 for each in others)
            if form.terms.get(Var(loop.var)) == 1 and divides and isinstance(form.const, int):
                digits.append((axis, form.const % extent))
                break
        else:
            return None
    return _Owner(extents_of(nest), tuple(digits))


def _touches(stmt: Stmt) -> Iterator[tuple[Buffer, tuple[Expr, ...], bool, bool]]:
    """Yield, for each access of a phase, the buffer, the indices, whether the access writes, and
    whether each thread certainly accesses only the element at the indices. The indices are () if
    they are not known.

    A compiler may load before a condition that some threads do not fulfil, so that they access
    elements of others.
    """
    conditional = {
        id(part)
        for branch in walk_stmts(stmt)
        if isinstance(branch, If | While)
        for part in walk_stmts(branch)
    }
    for part in walk_stmts(stmt):
        is_element = id(part) not in conditional
        if isinstance(part, Store):
            yield part.buffer, part.indices, True, is_element
        if isinstance(part, Intrinsic):
            for position, tile in enumerate(part.operands):
                where = () if 0 in tile.axes else tile.origin
                yield tile.buffer, where, False, False
                if position == 0:
                    yield tile.buffer, where, True, False
        for operand in operands(part):
            for load in loads(operand):
                yield load.buffer, load.indices, False, is_element


def _copied(stmt: Stmt) -> set[str]:
    """Return the names of the buffers to which a phase starts asynchronous copies."""
    return {call.operands[0].buffer.name for call in _late(stmt)} - _multiplied(stmt)


def _multiplies(stmt: Stmt) -> bool:
    """Check whether a phase starts asynchronous products of warpgroups."""
    return bool(_multiplied(stmt))


def _multiplied(stmt: Stmt) -> set[str]:
    buffers = (call.operands[0].buffer for call in _late(stmt))
    return {buffer.name for buffer in buffers if buffer.scope is MemoryScope.WARPGROUP}


def _late(stmt: Stmt) -> Iterator[Intrinsic]:
    """Yield the calls that start asynchronous copies or products."""
    for part in walk_stmts(stmt):
        if isinstance(part, Intrinsic) and part.is_late:
            yield part


def _index(value: int) -> Const:
    return Const(value, DType.I64)


def _digit(thread: Expr, inner: int, extent: int, is_first: bool) -> Expr:
    """Return the value of a loop variable of this extent, where each value is shared by `inner`
    consecutive threads: `thread // inner % extent`."""
    digit = thread if inner == 1 else Binary(BinaryOp.DIV, thread, _index(inner))
    return digit if is_first else Binary(BinaryOp.MOD, digit, _index(extent))
