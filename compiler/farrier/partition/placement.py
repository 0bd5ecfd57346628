"""Placement: assign each call to the memory space of its kernel, and copy values to where they are
read.

    call a(x) -> h               copy(x -> x@frame)
    call b(h) -> y        →      launch[frame] a(x@frame) -> h
                                 copy(h -> h@host)
    where `a` runs in            wait(frame)
    `frame`, `b` in the host     call b(h@host) -> y

A value is stored in the space of the first step that writes it; inputs and outputs of the program,
and values that the driver itself writes, are stored in the host. A step in another space reads a
twin of the value, a copy that is made once, or writes a twin, which is copied back. The twin of a
constant is another constant: the loader of the program uploads it to its space. For a machine with
one space, placement changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from farrier.ir.dim import Extent, as_extent
from farrier.ir.graph import Constant, Value
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Carried,
    Copy,
    DriverProgram,
    Fail,
    Home,
    Launch,
    Repeat,
    Shape,
    Step,
    Wait,
    calls_in,
    outermost,
    steps_in,
    without,
)
from farrier.partition.queues import accesses, with_waits
from farrier.partition.reorder_copies import with_copies_outside
from farrier.partition.spans import Span, are_apart, in_both, is_within
from farrier.partition.verify_program import verify_driver
from farrier_device.program import HOST


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """The memory space in which a kernel runs, and the shapes of its launches."""

    space: str = HOST
    shapes: tuple[Shape, ...] = (Shape(),)


def place(
    program: DriverProgram,
    site_of: Callable[[Call], Placement],
    alignments: Mapping[str, int] = MappingProxyType({}),
) -> DriverProgram:
    """Return the program with every call in the space that `site_of` returns, verified.
    `alignments` are the alignments of values in bytes, by space. Raises CompilerError."""
    sites = {call.outputs[0].name: site_of(call) for call in program.calls}
    if all(site.space == HOST for site in sites.values()):
        return program
    placed = with_waits(_Placing(program, sites, alignments).placed())
    verify_driver(placed)
    return placed


# The bytes of a memory that another space holds, too, by the names of both.
_Valid: TypeAlias = dict[tuple[str, str], tuple[Span, ...]]


class _Placing:
    """The placement of a program, which inserts copies step by step."""

    def __init__(
        self,
        program: DriverProgram,
        sites: Mapping[str, Placement],
        alignments: Mapping[str, int],
    ) -> None:
        self._program = program
        self._sites = sites
        self._alignments = alignments
        self._homes = dict(program.homes)
        self._spaces: dict[str, str] = {}
        self._constants = {c.value.name: c for c in program.constants}
        self._pointers: dict[str, str] = {}
        self._lies = self._choose_spaces()
        self._valid: _Valid = {}

    def placed(self) -> DriverProgram:
        steps = self._without_unread(self._steps(self._program.steps))
        steps = with_copies_outside(steps, self._space_of_value, self._span, HOST)
        roots = {self._root(value.name) for value in _read_in(steps)}
        roots |= {self._root(value.name) for value in self._program.outputs}
        return dataclasses.replace(
            self._program,
            steps=steps,
            homes=self._homes,
            spaces=self._spaces,
            constants=tuple(c for name, c in self._constants.items() if name in roots),
        )

    def _without_unread(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """Return the steps without copies whose target bytes no step reads."""
        while True:
            read: dict[str, list[Span]] = {}
            for value in (*self._program.outputs, *_read_in(steps)):
                root, span = self._span(value)
                read.setdefault(root, []).append(span)

            def is_read(copy: Copy, read: dict[str, list[Span]] = read) -> bool:
                root, span = self._span(copy.target)
                return any(not are_apart(span, each) for each in read.get(root, ()))

            left = without(steps, lambda step: isinstance(step, Copy) and not is_read(step))
            if left == steps:
                return steps
            steps = left

    def _space_of_value(self, value: Value) -> str:
        return self._spaces.get(self._root(value.name), HOST)

    def _span(self, value: Value) -> tuple[str, Span]:
        """Return the name of the memory that holds a value, and the range of its bytes there."""
        home = outermost(Home(value.name), self._homes)
        return home.name, (home.offset, home.offset + value.type.nbytes)

    # -- the space of each memory

    def _choose_spaces(self) -> dict[str, str]:
        """Return the space of each memory by name; the space of a pointer is that of the memory to
        which it points first."""
        for step in steps_in(self._program.steps):
            if isinstance(step, Repeat):
                for carried in step.carried:
                    self._pointers[carried.next.name] = carried.current.name
                for part in (*step.read, *step.written):
                    self._pointers[part.slice.name] = self._root(part.whole.name)
        lies: dict[str, str] = {}
        fixed = [*self._program.inputs, *self._program.outputs]
        fixed += [constant.value for constant in self._program.constants]
        fixed += [s.iteration for s in steps_in(self._program.steps) if isinstance(s, Repeat)]
        for value in fixed:
            lies[self._pointed(self._root(value.name))] = HOST
        steps = self._slice_bytes()
        for call in calls_in(self._program.steps):
            space = self._sites[call.outputs[0].name].space
            for value in call.outputs:
                name = self._pointed(self._root(value.name))
                is_aligned = all(
                    isinstance(nbytes, int) and nbytes % self._alignments.get(space, 1) == 0
                    for nbytes in steps.get(name, ())
                )
                lies.setdefault(name, space if is_aligned else HOST)
        for name in {*lies, *self._pointers}:
            if (space := lies.get(self._pointed(name), HOST)) != HOST:
                self._spaces[name] = space
        return lies

    def _slice_bytes(self) -> dict[str, list[Extent]]:
        """Return, for each memory of which loops use slices, the sizes of these slices in bytes. In
        a device, slices must be multiples of the alignment; a memory with other slices is stored in
        the host."""
        nbytes: dict[str, list[Extent]] = {}
        for step in steps_in(self._program.steps):
            if isinstance(step, Repeat):
                for part in (*step.read, *step.written):
                    name = self._pointed(part.slice.name)
                    nbytes.setdefault(name, []).append(part.slice.type.nbytes)
        return nbytes

    def _root(self, name: str) -> str:
        home = self._homes.get(name)
        return name if home is None else self._root(home.name)

    def _pointed(self, name: str) -> str:
        """Return the memory whose space determines the space of the pointer `name`. Return `name`
        itself if it is not a pointer."""
        while name in self._pointers:
            name = self._pointers[name]
        return name

    def _space_of(self, root: str) -> str:
        return self._lies.get(self._pointed(root), HOST)

    # -- steps

    def _steps(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(placed for step in steps for placed in self._step(step))

    def _step(self, step: Step) -> Iterator[Step]:
        match step:
            case Call():
                yield from self._call(step)
            case Bind():
                copies, value = self._read(step.value, HOST)
                yield from copies
                yield dataclasses.replace(step, value=value)
            case Branch():
                yield from self._branch(step)
            case Repeat():
                yield from self._repeat(step)
            case Fail():
                yield step
            case Launch() | Copy() | Wait():
                raise AssertionError("the program is placed already")

    def _call(self, call: Call) -> Iterator[Step]:
        site = self._sites[call.outputs[0].name]
        inputs: list[Value] = []
        for value in call.inputs:
            copies, twin = self._read(value, site.space)
            yield from copies
            inputs.append(twin)
        outputs: list[Value] = []
        behind: list[list[Copy]] = []
        for value in call.outputs:
            twin, copies = self._write(value, site.space)
            outputs.append(twin)
            behind.append(copies)
        moved = dataclasses.replace(call, inputs=tuple(inputs), outputs=tuple(outputs))
        if site.space == HOST:
            yield moved
        else:
            moved = dataclasses.replace(moved, count="", copies=False)
            yield Launch(moved, site.space, site.shapes)
            if call.count:  # The copies of other outputs have sizes that it decides.
                yield from behind.pop()
                copies, value = self._read(call.outputs[-1], HOST)
                yield from copies
                (symbol,) = (s for s in self._program.symbols if s.name == call.count)
                yield Bind(value, (as_extent(symbol),), call.origin)
        for copies in behind:
            yield from copies

    def _branch(self, step: Branch) -> Iterator[Step]:
        copies, condition = self._read(step.condition, HOST)
        yield from copies
        before = dict(self._valid)
        then = self._steps(step.then)
        after, self._valid = self._valid, before
        otherwise = self._steps(step.otherwise)
        self._valid = _in_both(self._valid, after)
        yield dataclasses.replace(step, condition=condition, then=then, otherwise=otherwise)

    def _repeat(self, step: Repeat) -> Iterator[Step]:
        trips, condition = step.trips, step.condition
        if isinstance(trips, Value):
            copies, trips = self._read(trips, HOST)
            yield from copies
        if condition is not None:
            copies, condition = self._read(condition, HOST)
            yield from copies
        carried: list[Carried] = []
        for each in step.carried:
            copies, initial = self._read(each.initial, self._space_of(each.current.name))
            yield from copies
            carried.append(dataclasses.replace(each, initial=initial))
        changed = self._changed_by(step)
        self._valid = {key: spans for key, spans in self._valid.items() if key[0] not in changed}
        for value, space in self._read_by(step.body):
            if self._root(value.name) not in changed:  # It is copied once, before the loop.
                copies, _ = self._read(value, space)
                yield from copies
        before = dict(self._valid)
        body = self._steps(step.body)
        again = step.again
        if again is not None:
            copies, again = self._read(again, HOST)
            body = (*body, *copies)
        self._valid = _in_both(self._valid, before)
        yield dataclasses.replace(
            step,
            trips=trips,
            condition=condition,
            body=body,
            again=again,
            carried=tuple(carried),
        )

    def _changed_by(self, loop: Repeat) -> set[str]:
        """Return the names of the memories and pointers that the iterations of a loop change."""
        names = {self._root(value.name) for call in calls_in(loop.body) for value in call.outputs}
        for step in steps_in((loop,)):
            if isinstance(step, Repeat):
                names.add(step.iteration.name)
                names |= {name for c in step.carried for name in (c.current.name, c.next.name)}
                for part in (*step.read, *step.written):
                    names.add(part.slice.name)
                names |= {self._root(part.whole.name) for part in step.written}
        return names

    def _read_by(self, steps: Iterable[Step]) -> Iterator[tuple[Value, str]]:
        """Yield the values that steps read, each with the space in which the step runs."""
        for step in steps_in(steps):
            here = HOST
            if isinstance(step, Call):
                here = self._sites[step.outputs[0].name].space
            yield from ((access.value, here) for access in accesses(step) if not access.is_write)

    # -- values

    def _read(self, value: Value, space: str) -> tuple[list[Copy], Value]:
        """Return the copies that must precede a read of `value` in a space, and the value to read
        there."""
        home = self._program.home(value)
        lies = self._space_of(home.name)
        if lies == space:
            return [], value
        if home.name in self._constants:
            return [], self._constant(value, home, space)
        span = home.offset, home.offset + value.type.nbytes
        twin = self._twin(value, space)
        if is_within(span, self._valid.get((home.name, space), ())):
            return [], twin
        copies: list[Copy] = []
        source = value
        if HOST not in (lies, space):
            copies, source = self._read(value, HOST)
        self._hold(home.name, space, span)
        return [*copies, Copy(source, twin)], twin

    def _write(self, value: Value, space: str) -> tuple[Value, list[Copy]]:
        """Return the value to write in a space instead of `value`, and the copies that must
        follow."""
        home = self._program.home(value)
        lies = self._space_of(home.name)
        span = home.offset, home.offset + value.type.nbytes
        for key, spans in self._valid.items():
            if key[0] == home.name:
                self._valid[key] = tuple(each for each in spans if are_apart(each, span))
        if lies == space:
            return value, []
        twin = self._twin(value, space)
        self._hold(home.name, space, span)
        if value.type.nbytes == 0:
            return twin, []
        if HOST in (lies, space):
            return twin, [Copy(twin, value)]
        between = self._twin(value, HOST)
        self._hold(home.name, HOST, span)
        return twin, [Copy(twin, between), Copy(between, value)]

    def _hold(self, name: str, space: str, span: Span) -> None:
        self._valid[name, space] = (*self._valid.get((name, space), ()), span)

    def _twin(self, value: Value, space: str) -> Value:
        """Return the copy of `value` in the memory space `space` (its twin). It has the same offset
        within the copy of the memory in which the value is stored."""
        home = self._program.home(value)
        twin = Value(f"{value.name}@{space}", value.type)
        root = f"{home.name}@{space}"
        if twin.name != root:
            self._homes[twin.name] = Home(root, home.offset)
        if space != HOST:
            self._spaces[root] = space
        return twin

    def _constant(self, value: Value, home: Home, space: str) -> Value:
        """Return the copy of a constant, or of a view of one, in a memory space."""
        twin = self._twin(value, space)
        constant = self._constants[home.name]
        whole = Value(f"{home.name}@{space}", constant.value.type)
        self._constants.setdefault(whole.name, Constant(whole, constant.content))
        return twin


def _in_both(valid: _Valid, other: _Valid) -> _Valid:
    return {key: in_both(valid[key], other[key]) for key in valid.keys() & other.keys()}


def _read_in(steps: Iterable[Step]) -> Iterator[Value]:
    """Yield the values that steps read, including the sources of copies and the values that loops
    pass on."""
    for step in steps_in(steps):
        yield from (access.value for access in accesses(step) if not access.is_write)
        match step:
            case Copy(source):
                yield source
            case Repeat():
                for carried in step.carried:
                    yield from (carried.initial, carried.next)
                for part in step.read:
                    yield part.whole
                for part in step.written:
                    yield part.slice
                if step.again is not None:
                    yield step.again
            case Call() | Launch() | Wait() | Bind() | Fail() | Branch():
                pass
