"""Finding places in a loop nest by name, and rebuilding the spine above a changed place."""

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

Path: TypeAlias = tuple[Stmt, ...]  # from the function's body down to one statement


_Place: TypeAlias = tuple[Stmt, "_Place | None"]  # a statement, and where the one around it stands


class NestView:
    """A function as a primitive sees it: the places it names, and its own name for errors."""

    __slots__ = ("_places", "function", "primitive")

    def __init__(self, function: Function, primitive: str) -> None:
        self.function = function
        self.primitive = primitive
        self._places: dict[str, _Place] | None = None

    def fail(self, reason: str) -> NoReturn:
        """Raises ScheduleError with the nest."""
        raise ScheduleError(self.primitive, reason, self.function)

    def ranges(self) -> dict[str, Extent]:
        """The extent of every loop; names are unique within a function."""
        return {name: _loop_at(place).extent for name, place in self._loops().items()}

    def path_to_loop(self, name: str) -> Path:
        """The way to the loop `name`; ScheduleError where there is none."""
        place: _Place | None = self._place(name)
        path = []
        while place is not None:
            stmt, place = place
            path.append(stmt)
        return tuple(reversed(path))

    def loop(self, name: str) -> For:
        """The loop `name`; ScheduleError where there is none."""
        return _loop_at(self._place(name))

    def _place(self, name: str) -> _Place:
        places = self._loops()
        if name not in places:
            self.fail(f"there is no loop {name}; the loops are {', '.join(places)}")
        return places[name]

    def _loops(self) -> dict[str, _Place]:
        """Where each loop stands, by its name, in order."""
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
        """The way to where the buffer `name` is allocated; ScheduleError where it is not."""
        path = find(self.function.body, lambda s: isinstance(s, Alloc) and s.buffer.name == name)
        if path is None:
            known = ", ".join(buffer.name for buffer in allocated(self.function.body))
            self.fail(f"no buffer {name} is allocated; those that are: {known or 'none'}")
        return path

    def param(self, name: str) -> Buffer | None:
        """The parameter `name`, if there is one."""
        return next((p for p in self.function.params if p.name == name), None)

    def require_new(self, *names: str) -> None:
        """ScheduleError where one of the loop names is taken or stands twice."""
        taken = self._loops()
        for position, name in enumerate(names):
            if name in taken or name in names[:position]:
                self.fail(f"there is a loop {name} already")

    def require_new_buffer(self, name: str) -> None:
        """ScheduleError where there is a buffer of that name."""
        if self.param(name) or any(b.name == name for b in allocated(self.function.body)):
            self.fail(f"there is a buffer {name} already")

    def replace(self, path: Path, new: Stmt) -> Function:
        """The function with the statement at the end of `path` replaced."""
        return dataclasses.replace(self.function, body=replaced(path, new))


def _loop_at(place: _Place) -> For:
    loop = place[0]
    assert isinstance(loop, For)
    return loop


def find(stmt: Stmt, wanted: Callable[[Stmt], bool]) -> Path | None:
    """The way to the first statement that is wanted, parents first."""
    if wanted(stmt):
        return (stmt,)
    for child in below(stmt):
        path = find(child, wanted)
        if path is not None:
            return (stmt, *path)
    return None


def loops(stmt: Stmt) -> list[For]:
    """Every loop, in order."""
    return [s for s in walk_stmts(stmt) if isinstance(s, For)]


def allocated(stmt: Stmt) -> list[Buffer]:
    """Every buffer that is allocated within."""
    return [s.buffer for s in walk_stmts(stmt) if isinstance(s, Alloc)]


def replaced(path: Path, new: Stmt) -> Stmt:
    """The root of `path` with its last statement replaced by `new`."""
    for parent, old in zip(reversed(path[:-1]), reversed(path[1:]), strict=True):
        new = _with_child(parent, old, new)
    return new


def _with_child(parent: Stmt, old: Stmt, new: Stmt) -> Stmt:
    changed = map_children(parent, lambda s: new if s is old else s)
    return block(list(changed.statements)) if isinstance(changed, Block) else changed


def nested(loop_list: Sequence[tuple[str, Extent]], body: Stmt) -> Stmt:
    """`body` within serial loops, given outermost first as (name, extent)."""
    for name, extent in reversed(loop_list):
        body = For(name, extent, LoopKind.SERIAL, body)
    return body


def guarded(stmt: Stmt, condition: Expr) -> Stmt:
    """Return `stmt` with `condition` before each statement that has an effect. Until
    `partition-loops` guards live at the leaves, so that loops stay perfectly nested."""
    match stmt:
        case For() | Alloc() | Block():
            return map_children(stmt, lambda s: guarded(s, condition))
        case If() | While() | Store() | Prefetch() | Intrinsic():
            return If(condition, stmt)
        case Barrier():  # All threads come to it, those with nothing to do as well.
            return stmt
        case _:
            assert_never(stmt)


def stores(stmt: Stmt, buffer: str) -> list[Store]:
    """Every store to the buffer within."""
    return [s for s in walk_stmts(stmt) if isinstance(s, Store) and s.buffer.name == buffer]


def without(stmt: Stmt, unwanted: Sequence[Stmt]) -> Stmt:
    """`stmt` without some statements of its outermost block."""
    if isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, without(stmt.body, unwanted))
    assert isinstance(stmt, Block)
    return block([s for s in stmt.statements if not any(s is u for u in unwanted)])


def outermost_block(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly in an allocation's body, whether under further ones or not."""
    while isinstance(stmt, Alloc):
        stmt = stmt.body
    return stmt.statements if isinstance(stmt, Block) else (stmt,)


def local_scope(loop: For) -> MemoryScope:
    """Where a buffer for one iteration of `loop` lives: in its thread, unless it has several."""
    shared = any(inside.kind is LoopKind.PARALLEL for inside in loops(loop.body))
    return MemoryScope.WORKSPACE if shared else MemoryScope.LOCAL
