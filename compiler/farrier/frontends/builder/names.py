"""The values that the names of a model denote, in nested graphs.

A name denotes a tensor of numbers or strings, a sequence of tensors, or an optional that may be
absent. The imported graph has tensors of numbers only: sequences and optionals exist only while
importing, except that the items of a sequence of unknown length lie in one tensor, and strings
become tensors of code points (`farrier/ir/strings.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeAlias

from farrier.ir.dim import Atom, Extent
from farrier.ir.graph import Node, Value
from farrier.ops import Mismatch, NotSupported


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """A sequence whose items lie in one tensor: as slices of its first axis, or with `lengths`, i64
    [items], concatenated along `axis`."""

    whole: Value
    lengths: Value | None = None
    axis: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Absent:
    """An optional that holds nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class Strings:
    """A tensor of strings, by its code points: u32, with the width as the last axis."""

    codes: Value


Entry: TypeAlias = Value | Strings | Sequence | Listed | Absent
Form: TypeAlias = tuple[Any, ...] | None


def form_of(entry: Entry) -> Form:
    """Return an entry without its tensors, a form from which `entry_of` restores it: None for a
    tensor."""
    match entry:
        case Value():
            return None
        case Strings():
            return ("strings",)
        case Sequence(items):
            return ("items", *map(form_of, items))
        case Listed(_, lengths, axis):
            return ("listed", lengths is not None, axis)
        case Absent():
            return ("absent",)


def tensors_of(entry: Entry) -> list[Value]:
    """Return the tensors of an entry, in the order in which `entry_of` takes them."""
    match entry:
        case Value():
            return [entry]
        case Strings(codes):
            return [codes]
        case Sequence(items):
            return [value for item in items for value in tensors_of(item)]
        case Listed(whole, lengths):
            return [whole] if lengths is None else [whole, lengths]
        case Absent():
            return []


def entry_of(form: Form, tensors: Iterator[Value]) -> Entry:
    """Restore an entry from its form, with tensors from an iterator: the inverse of `form_of` and
    `tensors_of`."""
    match form:
        case None:
            return next(tensors)
        case ("strings",):
            return Strings(next(tensors))
        case ("items", *items):
            return Sequence(tuple([entry_of(item, tensors) for item in items]))
        case ("listed", has_lengths, axis):
            return Listed(next(tensors), next(tensors) if has_lengths else None, axis)
        case _:
            return Absent()


def with_tensors(entry: Entry, change: Callable[[Value], Value]) -> Entry:
    """Return the entry with `change` applied to each of its tensors."""
    return entry_of(form_of(entry), iter([change(value) for value in tensors_of(entry)]))


class Body:
    """A graph or region under construction."""

    def __init__(self, parent: Body | None = None) -> None:
        self.parent = parent
        self.nodes: list[Node] = []
        self.constants: dict[str, Value] = {}
        # By the name outside: the value around the body, and the one in it.
        self.captured: dict[str, tuple[Value, Value]] = {}
        self.computed: dict[Hashable, Node] = {}  # Nodes by their operators, inputs and attributes.
        self.sizes: dict[Atom, Extent] = {}  # Symbols of the body around it, in this one's sizes.
        self.left: dict[str, Extent] = {}  # Narrowed sizes by the symbol's name.
        self.viewed: dict[str, Value] = {}  # Captured values in these sizes, by the name outside.


@dataclasses.dataclass(frozen=True, slots=True)
class _Frame:
    """The names of one graph of the model, which may share its body with the graph around it."""

    names: dict[str, Entry]
    body: Body


class Names:
    """The names that can be read at a place of the model. A name of the graph around a region is
    handed in: `hand_in` makes its value a value of the region."""

    def __init__(self, hand_in: Callable[[Value, Body], Value]) -> None:
        self._hand_in = hand_in
        self._frames = [_Frame({}, Body())]

    @property
    def body(self) -> Body:
        """The graph or region to which nodes are appended."""
        return self._frames[-1].body

    @contextlib.contextmanager
    def nested(self, body: Body | None = None) -> Iterator[Body]:
        """Within it names are those of a nested graph; `body` is that of a region, or None where
        the nested graph's nodes become part of the graph around it."""
        self._frames.append(_Frame({}, self.body if body is None else body))
        try:
            yield self.body
        finally:
            self._frames.pop()

    @property
    def outermost(self) -> dict[str, str]:
        """Return the names in the model's outermost graph that denote tensors of numbers, with the
        names of their values."""
        entries = self._frames[0].names.items()
        return {name: entry.name for name, entry in entries if isinstance(entry, Value)}

    def __contains__(self, name: object) -> bool:
        return any(name in frame.names for frame in self._frames)

    def is_local(self, name: str) -> bool:
        """Return whether the innermost graph itself defines the name."""
        return name in self._frames[-1].names

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._frames[-1].names[name] = entry

    def __getitem__(self, name: str) -> Value:
        """Return the tensor of that name. Raises KeyError, Mismatch for a name of something else,
        and NotSupported for strings: the operators that take them ask for the `entry`."""
        entry = self.entry(name)
        if isinstance(entry, Strings):
            raise NotSupported(f"the operand {name!r} of strings")
        if not isinstance(entry, Value):
            what = "a sequence" if isinstance(entry, Sequence | Listed) else "an absent optional"
            raise Mismatch(f"{name!r} is {what}, and must be a tensor")
        return entry

    def _handed(self, body: Body, value: Value) -> Value:
        return self._hand_in(value, body)

    def entry(self, name: str) -> Entry:
        """Return the entry of the name, as a part of the innermost body. Raises KeyError."""
        local = self._frames[-1].names.get(name)
        if local is not None:
            return local
        for depth in reversed(range(len(self._frames))):
            if name in self._frames[depth].names:
                break
        else:
            raise KeyError(name)
        entry = self._frames[depth].names[name]
        for outer, inner in zip(self._frames[depth:], self._frames[depth + 1 :], strict=False):
            if outer.body is not inner.body:
                entry = with_tensors(entry, functools.partial(self._handed, inner.body))
        return entry
