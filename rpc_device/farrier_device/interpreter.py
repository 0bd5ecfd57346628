"""An interpreter that runs programs (`farrier_device.program`) on devices.

The caller has loaded the code on each device, and provides host memory. Calls run on the device of
the space `host`; every other space belongs to a device with its own queue.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from farrier_device.devices.device import AnyDevice
from farrier_device.measurement import Launch as BoundLaunch
from farrier_device.memory import aligned_buffer
from farrier_device.program import (
    HOST,
    Allocate,
    Bind,
    Branch,
    Call,
    Check,
    Copy,
    Fail,
    Launch,
    Place,
    Program,
    Repeat,
    Size,
    Step,
    Wait,
    evaluate,
)

_I64 = 8  # Bytes of a size in memory.
_WORD = 4  # Bytes that a device may not write a part of.
_MOST_SIZES = 4096  # Sets of sizes that are kept: those of a large model, several times.
Sizes: TypeAlias = MutableSequence[int] | memoryview


class HostMemory(Protocol):
    """Memory of the host: its address, and a writable view of its bytes."""

    @property
    def address(self) -> int: ...

    @property
    def view(self) -> memoryview: ...


class _Ended(Exception):
    """The exception that ends a run before its last step, with the return code `code`. If a check
    has failed, `size` is the value that violated it."""

    def __init__(self, code: int, size: int = 0) -> None:
        self.code = code
        self.size = size


@dataclasses.dataclass(slots=True)
class _Pointer:
    """A pointer that a loop moves: a memory and an offset in bytes."""

    memory: Any
    offset: int


class _Bound(NamedTuple):
    """A bound launch in the cache, with its key: the places of its arguments, and `shape`, its grid
    and block."""

    places: list[tuple[Any, int]]
    shape: tuple[tuple[int, ...], tuple[int, ...]]
    bound: Any

    def is_of(self, places: Sequence[tuple[Any, int]], shape: object) -> bool:
        return self.shape == shape and all(
            memory is other and offset == at
            for (memory, offset), (other, at) in zip(self.places, places, strict=True)
        )


class Interpreter:
    """A program that can be run many times. The memory that a run allocates on devices is reused
    until the sizes of a run require a different amount.

    Memories of the caller that are `attached`, by name, are in device memory: each is a device
    memory and an offset in it. Copies between an attached memory and its device stay on the device.
    """

    def __init__(self, program: Program, devices: Mapping[str, AnyDevice]) -> None:
        self._program = program
        self._devices = devices
        self._allocated: dict[tuple[str, str], tuple[int, Any]] = {}
        self._is_set_up = False
        self._sizes: dict[str, int] = {}
        self._pointers: dict[tuple[str, str], _Pointer] = {}
        self._numbers: dict[tuple[str, tuple[int, ...]], Any] = {}  # Sizes in memory, by space.
        self._bound: dict[int, _Bound] = {}  # By the identity of a step.
        self._ready: list[Any] = []  # Launches that are to be started together,
        self._ready_on = ""  # and their space.
        self.attached: Mapping[str, tuple[Any, int]] = {}
        self._padded: list[memoryview] = []  # The sources of copies that may be queued.
        self._times: dict[int, list[int]] | None = None  # Of a run that is timed, in the same way.

    @property
    def launches(self) -> int:
        """The number of calls and launches in the program's text."""
        return sum(1 for _ in launches_in(self._program.steps))

    def run_timed(
        self, memories: Sequence[HostMemory], sizes: Sizes | None = None
    ) -> tuple[int, list[list[int]]]:
        """Run the program and time each call and launch separately. Return the result of `run`, and
        for each call and launch, in the order of the program's text, the nanoseconds of each of its
        executions."""
        times: dict[int, list[int]] = {}
        self._times = times
        try:
            code = self.run(memories, sizes)
        finally:
            self._times = None
        return code, [times.get(id(step), []) for step in launches_in(self._program.steps)]

    def run(self, memories: Sequence[HostMemory], sizes: Sizes | None = None) -> int:
        """Run the program on the memories that it declares, in the order of their declarations.
        Return 0, a positive code of a function or kernel that failed, or -1 - n if check number n
        failed.

        `sizes` contains the values of `dims`, followed by space for the counted sizes and for the
        size that failed a check; `run` fills both in.
        """
        program = self._program
        sizes = [] if sizes is None else sizes
        self._sizes = dict(zip(program.dims, sizes, strict=False))
        for name, size in program.named.items():
            self._sizes[name] = evaluate(size, self._sizes)
        self._ready.clear()  # What a run before has left that failed.
        self._padded.clear()  # The program before has waited for its copies.
        self._pointers = {key: _Pointer(memory, 0) for key, (_, memory) in self._allocated.items()}
        for declared, host_memory in zip(program.memories, memories, strict=True):
            self._pointers[HOST, declared.name] = _Pointer(host_memory, 0)
        code = 0
        try:
            if not self._is_set_up:
                self._steps(program.setup)
                self._is_set_up = True
            self._steps(program.steps)
        except _Ended as end:
            code = end.code
            for device in self._devices.values():
                device.synchronize()
            if code < 0 and len(sizes) > len(program.dims) + len(program.counted):
                sizes[len(program.dims) + len(program.counted)] = end.size
        for position, name in enumerate(program.counted, len(program.dims)):
            if name in self._sizes:
                sizes[position] = self._sizes[name]
        return code

    # -- steps

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if not isinstance(step, Launch) or step.space != self._ready_on:
                self._start()
            match step:
                case Allocate():
                    self._allocate(step)
                case Copy():
                    self._copy(step)
                case Launch() | Call():
                    self._launch(step)
                case Bind():
                    self._bind(step)
                case Fail(number):
                    raise _Ended(-1 - number)
                case Branch():
                    self._branch(step)
                case Repeat():
                    self._repeat(step)
                case Wait(space):
                    self._wait(space)
        self._start()

    def _start(self) -> None:
        """Start the launches that are collected but not yet started."""
        ready, self._ready = self._ready, []
        if ready:
            self._devices[self._ready_on].launch_all(ready)

    def _allocate(self, step: Allocate) -> None:
        key, nbytes = (step.space, step.memory), self._value(step.nbytes)
        before, memory = self._allocated.get(key, (-1, None))
        if nbytes != before:
            self._wait(step.space)  # Queued steps may use the memory before.
            self._allocated.pop(key, None)
            memory = None
            memory = self._devices[step.space].allocate(nbytes, len(self._allocated))
            self._allocated[key] = nbytes, memory
        self._pointers[key] = _Pointer(memory, 0)

    def _copy(self, step: Copy) -> None:
        nbytes = self._value(step.nbytes)
        (source, at), (target, to) = self._end(step.source), self._end(step.target)
        space = step.target.space if step.source.space == HOST else step.source.space
        if space != HOST and {step.source.memory, step.target.memory} & self.attached.keys():
            self._devices[space].copy_within(source, at, target, to, nbytes)
        elif step.source.space != HOST:
            self._devices[step.source.space].receive(source, at, target.view[to : to + nbytes])
        elif step.target.space != HOST:
            content = source.view[at : at + nbytes]
            if step.has_spare and nbytes % _WORD:
                content = memoryview(bytes(content) + bytes(-nbytes % _WORD))
                self._padded.append(content)
            self._devices[step.target.space].send(content, target, to)
        else:
            target.view[to : to + nbytes] = source.view[at : at + nbytes]

    def _launch(self, step: Launch | Call) -> None:
        if any(self._value(size) == 0 for size in step.needed):
            return
        places = [self._at(place) for place in step.args]
        grid: tuple[int, ...] = ()
        block: tuple[int, ...] = ()
        if isinstance(step, Call):
            symbol, space = step.function, HOST
            if step.copies and _address(*places[0]) == _address(*places[1]):
                return
        else:
            symbol, space = step.kernel, step.space
            grid = tuple(map(self._value, step.grid))
            block = tuple(map(self._value, step.block))
        if step.sizes:
            places.append((self._sizes_in(space, tuple(map(self._value, step.sizes))), 0))
        places += [self._at(place) for place in step.scratch]
        device, ready = self._devices[space], self._bound.get(id(step))
        if ready is None or not ready.is_of(places, (grid, block)):
            bound = device.bind(BoundLaunch(symbol, None, grid, block), places)
            ready = self._bound[id(step)] = _Bound(places, (grid, block), bound)
        if self._times is not None:
            [ticks] = device.time([ready.bound], 1, ())
            self._times.setdefault(id(step), []).extend(device.ns_of(ticks))
            return
        if space == HOST:
            device.launch(ready.bound)
            self._wait(HOST)
        else:
            self._ready.append(ready.bound)
            self._ready_on = space

    def _bind(self, step: Bind) -> None:
        value = self._read(step.place, _I64)
        self._check(value, step.check)
        if step.name:
            self._sizes[step.name] = value

    def _branch(self, step: Branch) -> None:
        is_true = self._read(step.condition, 1) != 0
        self._steps(step.then if is_true else step.otherwise)
        values = [each.then if is_true else each.otherwise for each in step.joined]
        for joined, value in zip(step.joined, [*map(self._value, values)], strict=True):
            self._sizes[joined.name] = value

    def _repeat(self, loop: Repeat) -> None:
        trips = None if loop.trips is None else self._value(loop.trips)
        if loop.limit is not None:
            trips = self._read(loop.limit, _I64)
        goes = loop.condition is None or self._read(loop.condition, 1) != 0
        carried = [
            [_Pointer(*self._at(place)) for place in (each.initial, each.even, each.odd)]
            for each in loop.carried
        ]
        keys = [
            ((each.initial.space, each.current), (each.even.space, each.next))
            for each in loop.carried
        ]
        for (current, after), (initial, even, _) in zip(keys, carried, strict=True):
            self._pointers[current], self._pointers[after] = initial, even
        wholes = [self._at(part.whole) for part in loop.slices]
        self._grow([(g.name, self._value(g.initial), g.check) for g in loop.grown])
        iteration = 0
        while goes and (trips is None or iteration < trips):
            self._check(iteration + 1, loop.check)
            memory, offset = self._at(loop.iteration)
            memory.view[offset : offset + _I64] = struct.pack("<q", iteration)
            for part, (whole, start) in zip(loop.slices, wholes, strict=True):
                at = start + iteration * self._value(part.step)
                self._pointers[part.whole.space, part.name] = _Pointer(whole, at)
            self._steps(loop.body)
            goes = loop.again is None or self._read(loop.again, 1) != 0
            self._grow([(g.name, self._value(g.next), g.check) for g in loop.grown])
            for (current, after), (_, _, odd) in zip(keys, carried, strict=True):
                free = odd if iteration == 0 else self._pointers[current]
                self._pointers[current], self._pointers[after] = self._pointers[after], free
            iteration += 1
        if loop.name:
            self._sizes[loop.name] = iteration
        for grown in loop.grown:
            self._sizes[grown.result] = self._sizes[grown.name]

    def _grow(self, sizes: Sequence[tuple[str, int, Check]]) -> None:
        for name, value, check in sizes:
            self._check(value, check)
            self._sizes[name] = value

    def _wait(self, space: str) -> None:
        if code := self._devices[space].synchronize():
            raise _Ended(code)

    # -- sizes and places

    def _check(self, value: int, check: Check | None) -> None:
        if check is None:
            return
        bound = self._value(check.bound)
        is_met = {
            "": 0 <= value <= bound,
            "exact": value == bound,
            "least": value >= bound,
            "most": value <= bound,
        }[check.demand]
        if not is_met:
            raise _Ended(-1 - check.number, value)

    def _value(self, size: Size) -> int:
        return evaluate(size, self._sizes)

    def _at(self, place: Place) -> tuple[Any, int]:
        pointer = self._pointers[place.space, place.memory]
        return pointer.memory, pointer.offset + self._value(place.offset)

    def _end(self, place: Place) -> tuple[Any, int]:
        """Return the memory and offset of one end (source or target) of a copy. For a memory of the
        caller that is attached, these are the device memory that holds it and the offset there."""
        if place.space != HOST or place.memory not in self.attached:
            return self._at(place)
        memory, offset = self.attached[place.memory]
        return memory, offset + self._value(place.offset)

    def _read(self, place: Place, nbytes: int) -> int:
        memory, offset = self._at(place)
        return int.from_bytes(memory.view[offset : offset + nbytes], "little", signed=True)

    def _sizes_in(self, space: str, sizes: tuple[int, ...]) -> Any:
        """Return memory in a space that contains the sizes as i64 values. The memory is cached by
        space and sizes, because consecutive runs usually have the same sizes."""
        key = space, sizes
        if key not in self._numbers:
            if len(self._numbers) >= _MOST_SIZES:
                for device in self._devices.values():
                    device.synchronize()
                self._numbers.clear()
            content = aligned_buffer(_I64 * len(sizes))
            content.view[:] = struct.pack(f"<{len(sizes)}q", *sizes)
            memory: Any = content
            if space != HOST:
                memory = self._devices[space].allocate(_I64 * len(sizes), len(self._allocated))
                self._devices[space].send(content.view, memory, 0)
            self._numbers[key] = memory
        return self._numbers[key]


def launches_in(steps: Sequence[Step]) -> Iterator[Launch | Call]:
    """Yield the calls and launches of steps and of the steps nested in them, in the order of the
    program's text."""
    for step in steps:
        match step:
            case Launch() | Call():
                yield step
            case Branch(_, then, otherwise, _):
                yield from launches_in((*then, *otherwise))
            case Repeat(body=body):
                yield from launches_in(body)


def _address(memory: HostMemory, offset: int) -> int:
    return memory.address + offset


def read_by_host(program: Program) -> frozenset[str]:
    """Return the names of the caller's memories that steps executed by the host read or write;
    copies to and from a device do not count."""
    names: set[str] = set()
    for step in _all(program.steps):
        places = list(_host_places(step))
        names |= {place.memory for place in places if place.space == HOST}
    return frozenset(names)


def _all(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        match step:
            case Branch(_, then, otherwise, _):
                yield from _all((*then, *otherwise))
            case Repeat(body=body):
                yield from _all(body)


def _host_places(step: Step) -> Iterator[Place]:
    match step:
        case Call():
            yield from (*step.args, *step.scratch)
        case Copy(source, target) if source.space == target.space:
            yield from (source, target)
        case Bind():
            yield step.place
        case Branch():
            yield step.condition
        case Repeat():
            ends = (step.limit, step.condition, step.again, step.iteration)
            yield from (place for place in ends if place is not None)
            for carried in step.carried:
                yield from (carried.initial, carried.even, carried.odd)
            yield from (part.whole for part in step.slices)
