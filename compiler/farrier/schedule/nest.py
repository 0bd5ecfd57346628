"""Find loops and allocations in a loop nest by name, and rebuild the statements around a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias, assert_never

from farrier.ir.dim import Extent
from farrier.ir.expr import Buffer, Expr, MemoryScope
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
from farrier.ir.statements import below, block, map_children, walk_stmts
from farrier.schedule.errors import ScheduleError

Path: TypeAlias = tuple[Stmt, ...]  # From the function's body down to one statement.


# A statement, and the place of the statement around it.
_Place: TypeAlias = tuple[Stmt, "_Place | None"]


class NestView:
    """A view of a function for a primitive: lookup of loops and buffers by name, and errors that
    name the primitive."""

    __slots__ = ("_places", "function", "primitive")

    def __init__(self, function: Function, primitive: str) -> None:
        self.function = function
        self.primitive = primitive
        self._places: dict[str, _Place] | None = None

    def fail(self, reason: str) -> NoReturn:
        """Raise ScheduleError with the reason and the text of the function."""
        raise ScheduleError(self.primitive, reason, self.function)

    def ranges(self) -> dict[str, Extent]:
        """Return the extent of every loop by the loop's name, which is unique within a function."""
        return {name: _loop_at(place).extent for name, place in self._loops().items()}

    def path_to_loop(self, name: str) -> Path:
        """Return the path to the loop `name`; raises ScheduleError if it does not exist."""
        place: _Place | None = self._place(name)
        path = []
        while place is not None:
            stmt, place = place
            path.append(stmt)
        return tuple(reversed(path))

    def loop(self, name: str) -> For:
        """Return the loop `name`; raises ScheduleError if it does not exist."""
        return _loop_at(self._place(name))

    def _place(self, name: str) -> _Place:
        places = self._loops()
        if name not in places:
            self.fail(f"there is no loop {name}; the loops are {', '.join(places)}")
        return places[name]

    def _loops(self) -> dict[str, _Place]:
        """Return, by loop name and in order, each loop with its chain of enclosing statements."""
        if self._places is None:
            self._places = {}
            stack: list[_Place] = [(self.function.body, None)]
            while stack:
                place = stack.pop()
                stmt = place[0]
                if type(stmt) is For:
                    self._places[stmt.var] = place
                    stack.append((stmt.body, place))
                else:
                    stack += [
                        (child, place) for child in below(stmt)[::-1] if type(child) is not Store
                    ]
        return self._places

    def path_to_alloc(self, name: str) -> Path:
        """Return the path to the allocation of the buffer `name`; raises ScheduleError if it does
        not exist."""
        path = find(self.function.body, lambda s: isinstance(s, Alloc) and s.buffer.name == name)
        if path is None:
            names = ", ".join(buffer.name for buffer in allocated(self.function.body))
            self.fail(f"no buffer {name} is allocated; the allocated ones: {names or 'none'}")
        return path

    def param(self, name: str) -> Buffer | None:
        """Return the parameter `name` of the function, or None if there is none."""
        return next((p for p in self.function.params if p.name == name), None)

    def require_new(self, *names: str) -> None:
        """Raise ScheduleError if one of the names is the name of an existing loop, or occurs
        twice."""
        taken = self._loops()
        for position, name in enumerate(names):
            if name in taken or name in names[:position]:
                self.fail(f"there is a loop {name} already")

    def require_new_buffer(self, name: str) -> None:
        """Raise ScheduleError if a parameter or an allocated buffer has this name."""
        if self.param(name) or any(b.name == name for b in allocated(self.function.body)):
            self.fail(f"there is a buffer {name} already")

    def replace(self, path: Path, new: Stmt) -> Function:
        """Return the function with the statement at the end of `path` replaced by `new`."""
        return dataclasses.replace(self.function, body=replaced(path, new))


def _loop_at(place: _Place) -> For:
    loop = place[0]
    assert isinstance(loop, For)
    return loop


def find(stmt: Stmt, wanted: Callable[[Stmt], bool]) -> Path | None:
    """Search a statement and the statements within it, in pre-order. Return the path to the first
    for which `wanted` is true, or None."""
    if wanted(stmt):
        return (stmt,)
    for child in below(stmt):
        path = find(child, wanted)
        if path is not None:
            return (stmt, *path)
    return None


def alloc_at(path: Path) -> Alloc:
    """Return the allocation at the end of a path that `NestView.path_to_alloc` returned."""
    alloc = path[-1]
    assert isinstance(alloc, Alloc)
    return alloc


def loops(stmt: Stmt) -> list[For]:
    """Return every loop within `stmt` in pre-order."""
    return [s for s in walk_stmts(stmt) if isinstance(s, For)]


def allocated(stmt: Stmt) -> list[Buffer]:
    """Return every buffer that is allocated within `stmt`."""
    return [s.buffer for s in walk_stmts(stmt) if isinstance(s, Alloc)]


def replaced(path: Path, new: Stmt) -> Stmt:
    """Return the root of `path` with its last statement replaced by `new`."""
    for parent, old in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        new = _with_child(parent, old, new)
    return new


def _with_child(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    changed = map_children(parent, lambda s: new if s is old else s)
    return block(list(changed.statements)) if isinstance(changed, Block) else changed


def nested(loop_list: Sequence[tuple[str, Extent]], body: Stmt) -> Stmt:
    """Wrap `body` in serial loops, listed outermost first as (name, extent)."""
    for name, extent in reversed(loop_list):
        body = For(name, extent, LoopKind.SERIAL, body)
    return body


def guarded(stmt: Stmt, condition: Expr) -> Stmt:
    """Return `stmt` with `condition` as a guard around each statement that has an effect. Until
    `partition-loops` runs, guards stay at the leaves, so that loops stay perfectly nested."""
    match stmt:
        case For() | Alloc() | Block():
            return map_children(stmt, lambda s: guarded(s, condition))
        case If() | While() | Store() | Prefetch() | Intrinsic():
            return If(condition, stmt)
        case Barrier():  # All threads reach a barrier, also those without work.
            return stmt
        case _:
            assert_never(stmt)


def stores(stmt: Stmt, buffer: str) -> list[Store]:
    """Return every store to the buffer within `stmt`."""
    return [s for s in walk_stmts(stmt) if isinstance(s, Store) and s.buffer.name == buffer]


def without(stmt: Stmt, unwanted: Sequence[Stmt]) -> Stmt:
    """Return `stmt` without the statements `unwanted` of its outermost block."""
    if isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, without(stmt.body, unwanted))
    assert isinstance(stmt, Block)
    return block([s for s in stmt.statements if not any(s is u for u in unwanted)])


def outermost_block(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly in the body of the allocation (or nested allocations)
    `stmt`."""
    while isinstance(stmt, Alloc):
        stmt = stmt.body
    return stmt.statements if isinstance(stmt, Block) else (stmt,)


def local_scope(loop: For) -> MemoryScope:
    """Return the memory scope of a buffer that is allocated in each iteration of `loop`: local to
    the thread, or the workspace if several threads share an iteration."""
    shared = any(inside.kind is LoopKind.PARALLEL for inside in loops(loop.body))
    return MemoryScope.WORKSPACE if shared else MemoryScope.LOCAL
