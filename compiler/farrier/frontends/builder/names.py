"""The scope of names in a model with nested graphs, and the values that they denote.

A name denotes a tensor of numbers or strings, a sequence of tensors, or an optional that may be
absent. The imported graph has tensors of numbers only: sequences and optionals exist only while
importing, except that the items of a sequence of unknown length are stored in a single tensor, and
strings become tensors of code points (`farrier/ir/strings.py`).
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
    """A sequence stored in a single tensor: its items are the slices along the first axis or, with
    `lengths` (i64 [items]), are concatenated along `axis`."""

    whole: Value
    lengths: Value | None = None
    axis: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Absent:
    """An optional without a value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Strings:
    """A tensor of strings, stored as code points: u32, with the width as the last axis."""

    codes: Value


Entry: TypeAlias = Value | Strings | Sequence | Listed | Absent
Form: TypeAlias = tuple[Any, ...] | None


def form_of(entry: Entry) -> Form:
    """Return the structure of an entry without its tensors: None for a tensor, nested tuples
    otherwise. `entry_of` restores the entry from this form and from the tensors."""
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
    """Return the tensors of an entry, in the order that `entry_of` expects."""
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
    """Return the entry with each tensor replaced by `change(tensor)`."""
    return entry_of(form_of(entry), iter([change(value) for value in tensors_of(entry)]))


class Body:
    """The nodes and constants of a graph or region under construction."""

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
    """The names defined in one graph of the model. It has its own `Body`, or, if the graph is
    inlined, adds to the body of the enclosing graph."""

    names: dict[str, Entry]
    body: Body


class Names:
    """The scopes of names at the current position in the model. A name of an enclosing graph can be
    read in a region: `hand_in` then makes its value an input of the region."""

    def __init__(self, hand_in: Callable[[Value, Body], Value]) -> None:
        self._hand_in = hand_in
        self._frames = [_Frame({}, Body())]

    @property
    def body(self) -> Body:
        """The graph or region to which nodes are currently appended."""
        return self._frames[-1].body

    @contextlib.contextmanager
    def nested(self, body: Body | None = None) -> Iterator[Body]:
        """Enter the scope of a nested graph. `body` is the region to which its nodes are appended,
        or None if they are appended to the enclosing graph."""
        self._frames.append(_Frame({}, self.body if body is None else body))
        try:
            yield self.body
        finally:
            self._frames.pop()

    @property
    def outermost(self) -> dict[str, str]:
        """A map from the names in the model's outermost graph to the names of the values in the
        imported graph. Only tensors of numbers are included."""
        entries = self._frames[0].names.items()
        return {name: entry.name for name, entry in entries if isinstance(entry, Value)}

    def __contains__(self, name: object) -> bool:
        return any(name in frame.names for frame in self._frames)

    def is_local(self, name: str) -> bool:
        """Check whether the innermost graph itself defines a name."""
        return name in self._frames[-1].names

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._frames[-1].names[name] = entry

    def __getitem__(self, name: str) -> Value:
        """Return the tensor that a name denotes. Raises KeyError for an undefined name, Mismatch
        for a sequence or optional, and NotSupported for strings: operators on strings call `entry`
        instead."""
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
        """Return the entry that a name denotes. If the name is defined in an enclosing graph, its
        tensors first become inputs of all regions in between. Raises KeyError."""
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
