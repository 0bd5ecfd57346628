"""Track the queues of a driver program: the accesses that may still be pending while the host goes
on.

Launches in a space, and copies from or to it, run in the order of its queue, some time before the
next wait for it. So a step of the host, or of another queue, that depends on a pending access must
follow a wait:

    Copy(y.device, y)
    Wait(device)         otherwise the call would read y too early
    Call(k, [y], [z])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from farrier.ir.graph import Value
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Copy,
    DriverProgram,
    Fail,
    Launch,
    Repeat,
    Step,
    Wait,
    steps_in,
)
from farrier_device.program import HOST


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """A read or a write of a value, by the host or by the queue of a space."""

    value: Value
    is_write: bool
    by: str


@dataclasses.dataclass(frozen=True, slots=True)
class Hazard:
    """An access that conflicts with a pending access of the queue of `space` to the same value;
    `is_write` is set if the pending access is a write."""

    access: Access
    space: str
    is_write: bool


# The uses that are pending, by the name of the memory: the space of the queue, and whether it
# writes.
Pending: TypeAlias = dict[str, frozenset[tuple[str, bool]]]


def accesses(step: Step) -> Iterator[Access]:
    """Yield the accesses of a step without those of steps nested in it. The values that a loop
    reads between iterations are not included."""
    match step:
        case Call():
            yield from _of_call(step, HOST)
        case Launch():
            yield from _of_call(step.call, step.space)
        case Bind(value=value) | Branch(condition=value):
            yield Access(value, False, HOST)
        case Repeat():
            for start in (step.trips, step.condition):
                if isinstance(start, Value):
                    yield Access(start, False, HOST)
            yield Access(step.iteration, True, HOST)
        case Copy() | Wait() | Fail():
            pass


def values_of(steps: Iterable[Step]) -> Iterator[Value]:
    """Yield the values that steps use, nested steps included."""
    for step in steps_in(steps):
        yield from (access.value for access in accesses(step))
        match step:
            case Copy(source, target):
                yield from (source, target)
            case Repeat():
                for carried in step.carried:
                    yield from (carried.initial, carried.current, carried.next)
                for part in (*step.read, *step.written):
                    yield from (part.whole, part.slice)
                if step.again is not None:
                    yield step.again
            case Call() | Launch() | Wait() | Bind() | Fail() | Branch():
                pass


def queue_of(copy: Copy, program: DriverProgram) -> str:
    """Return the space whose queue executes a copy: the one at its end outside the host; `host` for
    a copy within the host."""
    ends = program.space(copy.source), program.space(copy.target)
    return next((space for space in ends if space != HOST), HOST)


def _of_call(call: Call, by: str) -> Iterator[Access]:
    yield from (Access(value, False, by) for value in call.inputs)
    yield from (Access(value, True, by) for value in call.outputs)


def pointees(program: DriverProgram) -> dict[str, frozenset[str]]:
    """Return, by name, the memories to which each pointer of a loop may point. The two buffers of a
    carried value go by the name of the pointer `current`."""
    names: dict[str, frozenset[str]] = {}

    def roots(value: Value) -> frozenset[str]:
        name = program.home(value).name
        return names.get(name, frozenset((name,)))

    for step in steps_in(program.steps):
        if isinstance(step, Repeat):
            for carried in step.carried:
                own = frozenset((carried.current.name,))
                names[carried.current.name] = own | roots(carried.initial)
                names[carried.next.name] = own
            for part in (*step.read, *step.written):
                names[part.slice.name] = roots(part.whole)
    return names


class Queues:
    """A traversal of a program that calls `meet` for every hazard. The steps that `meet` returns, a
    wait for the space of the hazard or nothing, are inserted before the access."""

    def __init__(
        self, program: DriverProgram, meet: Callable[[Step | None, Hazard], Wait | None]
    ) -> None:
        self._program = program
        self._meet = meet
        self._pointees = pointees(program)

    def walk(self) -> tuple[Step, ...]:
        """Return the steps with waits before the accesses that need them, and waits at the end for
        everything that queues do to values of the host."""
        steps, pending = self._steps(self._program.steps, {})
        if pending is None:
            return steps
        values = {name: Value(name, value.type) for name, value in self._host_values().items()}
        ends = [Access(values[name], True, HOST) for name in pending if name in values]
        return (*steps, *self._waits(None, ends, pending))

    def _host_values(self) -> dict[str, Value]:
        """Return one value for each memory of the host that a copy reads or writes."""
        copies = (step for step in steps_in(self._program.steps) if isinstance(step, Copy))
        values = (value for step in copies for value in (step.source, step.target))
        return {
            name: value
            for value in values
            if self._program.space(value) == HOST
            for name in self._names(value)
        }

    def _steps(
        self, steps: Iterable[Step], pending: Pending | None
    ) -> tuple[tuple[Step, ...], Pending | None]:
        """Return the steps with waits inserted, and the accesses that are still pending after the
        last step; None instead of the latter if the steps always end the run. `pending` are the
        accesses pending before the first step, and is updated in place."""
        result: list[Step] = []
        for step in steps:
            if pending is None:
                result.append(step)
                continue
            uses = [*accesses(step)]
            if isinstance(step, Copy):
                by = queue_of(step, self._program)
                uses += [Access(step.source, False, by), Access(step.target, True, by)]
            result += self._waits(step, uses, pending)
            match step:
                case Call() | Launch() | Copy() | Bind():
                    self._queue(uses, pending)
                    result.append(step)
                case Wait(space):
                    _clear(pending, space)
                    result.append(step)
                case Fail():
                    result.append(step)
                    pending = None
                case Branch():
                    step, pending = self._branch(step, pending)
                    result.append(step)
                case Repeat():
                    step, pending = self._repeat(step, pending)
                    result.append(step)
        return tuple(result), pending

    def _branch(self, step: Branch, pending: Pending) -> tuple[Branch, Pending | None]:
        then, after = self._steps(step.then, dict(pending))
        otherwise, others = self._steps(step.otherwise, dict(pending))
        step = dataclasses.replace(step, then=then, otherwise=otherwise)
        return step, _joined(after, others)

    def _repeat(self, step: Repeat, before: Pending) -> tuple[Repeat, Pending]:
        ends = [Access(step.iteration, True, HOST)]
        if step.again is not None:
            ends.append(Access(step.again, False, HOST))
        start = before
        while True:
            body, pending = self._steps(step.body, dict(start))
            if pending is not None:
                body = (*body, *self._waits(step, ends, pending))
            joined = _joined(start, pending)
            assert joined is not None
            if joined == start:
                return dataclasses.replace(step, body=body), start
            start = joined

    def _waits(self, step: Step | None, uses: Sequence[Access], pending: Pending) -> Iterator[Wait]:
        for access in uses:
            for name in self._names(access.value):
                for space, is_write in sorted(pending.get(name, ())):
                    if space != access.by and (is_write or access.is_write):
                        # An earlier wait may have ended it.
                        if (space, is_write) not in pending.get(name, ()):
                            continue
                        wait = self._meet(step, Hazard(access, space, is_write))
                        if wait is not None:
                            _clear(pending, space)
                            yield wait

    def _queue(self, uses: Iterable[Access], pending: Pending) -> None:
        for access in uses:
            if access.by != HOST:
                for name in self._names(access.value):
                    before = pending.get(name, frozenset())
                    pending[name] = before | {(access.by, access.is_write)}

    def _names(self, value: Value) -> list[str]:
        name = self._program.home(value).name
        return sorted(self._pointees.get(name, (name,)))


def _clear(pending: Pending, space: str) -> None:
    for name, uses in [*pending.items()]:
        left = frozenset(use for use in uses if use[0] != space)
        if left:
            pending[name] = left
        else:
            del pending[name]


def _joined(pending: Pending | None, other: Pending | None) -> Pending | None:
    if pending is None or other is None:
        return pending if other is None else other
    nothing: frozenset[tuple[str, bool]] = frozenset()
    names = pending.keys() | other.keys()
    return {name: pending.get(name, nothing) | other.get(name, nothing) for name in names}


def with_waits(program: DriverProgram) -> DriverProgram:
    """Return the program with a wait inserted before each step that needs one."""
    steps = Queues(program, lambda _, hazard: Wait(hazard.space)).walk()
    return dataclasses.replace(program, steps=steps)
