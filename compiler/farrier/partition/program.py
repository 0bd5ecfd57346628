"""The program of a model's driver: calls of kernels in order, under conditions and in loops.

    program = Program([value] inputs, [value] outputs, [constant], [step], homes)
    step    = Call(task, [value] inputs, [value] outputs)
            | Branch(condition, [step] then, [step] otherwise)
            | Repeat(trips?, condition?, again?, iteration, [carried], [slice] read,
                     [slice] written, [step] body)

All regions of a graph are in one program, so the names of their values are made unique: those of a
region begin with the first result of its node. A value that has no memory of its own has a home:
the value in whose memory it lies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from farrier.ir.dim import Extent, Symbol, symbols, upper
from farrier.ir.graph import Constant, Value


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call of a task: `inputs` and `outputs` are in the order of the task's region; `origin`
    names the ONNX nodes that it computes. One run of the model makes it `runs` times: the product
    of the trip counts around it, as far as they are known; both branches of a condition count.
    `dims` are the values of the region's dims, in terms of the model's. Where the data decides an
    extent, `count` is its symbol, and the last output holds its value."""

    task: str  # the task's key
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    origin: str
    runs: int = 1
    dims: tuple[Extent, ...] = ()
    count: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    condition: Value
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """What goes from iteration to iteration. `current` and `next` have no memory of their own: they
    are pointers that change places. After the loop `current` is the result."""

    initial: Value
    current: Value
    next: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """Slice i of `whole` along axis 0, in iteration i: a pointer into it."""

    whole: Value
    slice: Value


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """The body once an iteration, as `ir.control.Loop` says. `trips` is an extent where it follows
    from sizes; None where there is no bound."""

    trips: Value | Extent | None
    condition: Value | None
    again: Value | None
    iteration: Value
    carried: tuple[Carried, ...]
    read: tuple[Slice, ...]
    written: tuple[Slice, ...]
    body: tuple[Step, ...]
    count: str = ""  # the symbol of how often it ran


Step: TypeAlias = Call | Branch | Repeat


@dataclasses.dataclass(frozen=True, slots=True)
class Home:
    """The value in whose memory another lies, and how many bytes behind its start."""

    name: str
    offset: Extent = 0


@dataclasses.dataclass(frozen=True)
class Program:
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    homes: Mapping[str, Home]  # by value name; of values that have memory of their own, none

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """The sizes that a caller gives, in the order in which they do."""
        shapes = (value.type.shape for value in self.inputs)
        return tuple(dict.fromkeys(symbols(extent for shape in shapes for extent in shape)))

    def room(self, value: Value) -> Extent:
        """The bytes that a value may take: what data decides is at most its bound."""
        given = frozenset(symbol.name for symbol in self.dims)
        return upper(value.type.nbytes, lambda symbol: symbol.name in given)

    @property
    def counted(self) -> tuple[Symbol, ...]:
        """The extents of outputs that the data decides, each behind those of its bound."""
        found: dict[Symbol, None] = {}
        waiting = list(symbols(extent for value in self.outputs for extent in value.type.shape))
        while waiting:
            found |= dict.fromkeys(waiting)
            waiting = list(symbols(symbol.high for symbol in waiting))
        return tuple(symbol for symbol in reversed(found) if symbol not in self.dims)

    @property
    def calls(self) -> list[Call]:
        """Every call, each once, in the order of the text."""
        return list(calls_in(self.steps))

    def home(self, value: Value) -> Home:
        """Where a value lies: in its own memory, if in no other's."""
        return outermost(Home(value.name), self.homes)


def calls_in(steps: Iterable[Step]) -> Iterator[Call]:
    for step in steps:
        match step:
            case Call():
                yield step
            case Branch():
                yield from calls_in(step.then)
                yield from calls_in(step.otherwise)
            case Repeat():
                yield from calls_in(step.body)


def outermost(home: Home, homes: Mapping[str, Home]) -> Home:
    """The home's home, and so on."""
    while home.name in homes:
        outer = homes[home.name]
        home = Home(outer.name, home.offset + outer.offset)
    return home
