"""Convert a driver program with addresses to plain data, which `farrier_device.interpreter` runs.

    Program              every value at a place in a memory; the memory of a device is allocated,
                         and its constants are copied there once, in the setup

The runtime checks are numbered in the order of the program, as in the entry of a CPU model.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from farrier.ir.dim import Atom, Extent, dim, substitute
from farrier.ir.graph import Value
from farrier.partition import program as driver
from farrier.partition.addresses import Addresses, KernelCall, Sizes, ends_of_copy
from farrier.partition.checks import Checks, Limit
from farrier.partition.plan_memory import MemoryPlan, Place, Segment, buffers_of
from farrier.partition.program import DriverProgram
from farrier.partition.queues import values_of
from farrier.targets.linked import Check
from farrier_device import program as device
from farrier_device.program import HOST, Program, Size

_WORD = 4  # The size of a word in bytes; a device may only copy complete words.


def executable(
    program: DriverProgram,
    addresses: Addresses,
    memories: Mapping[str, MemoryPlan],
    params_bytes: int,
) -> tuple[Program, tuple[Check, ...]]:
    """Return the program with addresses as plain data, and its checks by number. The caller of the
    result provides inputs, outputs, parameters and workspace, in this order."""
    return _Resolving(program, addresses, memories, params_bytes).resolved()


class _Resolving:
    def __init__(
        self,
        program: DriverProgram,
        addresses: Addresses,
        memories: Mapping[str, MemoryPlan],
        params_bytes: int,
    ) -> None:
        self._program = program
        self._addresses = addresses
        self._memories = memories
        self._params_bytes = params_bytes
        self._checks = Checks(program)
        # The tops of a plan have names that no other plan has, and that are identifiers.
        self._tops: dict[str, dict[Atom, Extent]] = {
            space: {
                top: dim(f"top{number}_{at}", top.low, top.high, top.typical)
                for at, top in enumerate(plan.tops)
            }
            for number, (space, plan) in enumerate(memories.items())
        }

    def resolved(self) -> tuple[Program, tuple[Check, ...]]:
        program = self._program
        named = {
            str(self._tops[space][top]): _largest(self._size(each, space) for each in extents)
            for space, plan in self._memories.items()
            for top, extents in plan.tops.items()
        }
        memories = [
            device.Memory(f"{side}{number}", self._size(program.room(value)))
            for side, values in (("input", program.inputs), ("output", program.outputs))
            for number, value in enumerate(values)
        ]
        memories.append(device.Memory("params", self._params_bytes))
        memories.append(device.Memory("workspace", self._workspace(HOST)))
        steps = [
            device.Allocate("workspace", space, self._workspace(space))
            for space in self._memories
            if space != HOST
        ]
        resolved = Program(
            tuple(memories),
            tuple(symbol.name for symbol in program.dims),
            tuple(symbol.name for symbol in program.counted),
            named,
            tuple(self._setup()),
            (*steps, *self._steps(program.steps)),
        )
        return resolved, tuple(self._checks.checks)

    def _workspace(self, space: str) -> Size:
        return self._size(self._memories[space].workspace_bytes, space)

    def _setup(self) -> Iterator[device.Step]:
        """Yield the steps that copy constants to the memory where they are read."""
        for space in self._memories:
            uploads = [upload for upload in self._addresses.uploads if upload.space == space]
            if not uploads:
                continue
            nbytes = max(upload.target + upload.nbytes for upload in uploads)
            yield device.Allocate("params", space, nbytes)
            for upload in uploads:
                source = device.Place("params", upload.source)
                target = device.Place("params", upload.target, space)
                yield device.Copy(source, target, upload.nbytes, upload.nbytes % _WORD != 0)
            yield device.Wait(space)

    # -- steps

    def _steps(self, steps: Iterable[driver.Step]) -> tuple[device.Step, ...]:
        return tuple(resolved for step in steps for resolved in self._step(step))

    def _step(self, step: driver.Step) -> Iterator[device.Step]:
        match step:
            case driver.Call():
                yield from self._call(step)
            case driver.Launch():
                yield from self._launches(step)
            case driver.Copy(source, target):
                nbytes = source.type.nbytes
                places = self._at(source), self._at(target)
                yield device.Copy(*places, self._size(nbytes), self._has_spare(target))
            case driver.Wait(space):
                yield device.Wait(space)
            case driver.Bind():
                yield from self._bind(step)
            case driver.Fail():
                yield device.Fail(self._checks.of_failure(step))
            case driver.Branch():
                yield self._branch(step)
            case driver.Repeat():
                yield self._repeat(step)
            case _:
                assert_never(step)

    def _call(self, step: driver.Call) -> Iterator[device.Step]:
        call = self._addresses.calls[step.outputs[0].name]
        args, sizes, scratch = self._arguments(call)
        needed = tuple(map(self._size, step.needed))
        copies = step.copies and ends_of_copy(call) is not None
        yield device.Call(call.function, args, sizes, scratch, needed, copies)
        if step.count:
            self._checks.bound.add(step.count)
            yield device.Bind(self._at(step.outputs[-1]), step.count)

    def _launches(self, step: driver.Launch) -> Iterator[device.Launch]:
        call = self._addresses.calls[step.call.outputs[0].name]
        arguments = self._arguments(call)
        for shape in step.shapes:
            needed, grid, block = (
                tuple(map(self._size, extents))
                for extents in (step.call.needed, shape.grid, shape.block)
            )
            entry = f"{call.function}{shape.entry}"
            yield device.Launch(entry, step.space, *arguments, needed, grid, block)

    def _arguments(
        self, call: KernelCall
    ) -> tuple[tuple[device.Place, ...], tuple[Size, ...], tuple[device.Place, ...]]:
        """Return the arguments of a kernel before its sizes, the sizes, and the arguments after the
        sizes."""
        ahead: list[device.Place] = []
        behind: list[device.Place] = []
        sizes: tuple[Size, ...] = ()
        for argument in call.args:
            if isinstance(argument, Sizes):
                sizes = tuple(map(self._size, argument.extents))
            else:
                (behind if sizes else ahead).append(self._place(argument))
        return tuple(ahead), sizes, tuple(behind)

    def _bind(self, step: driver.Bind) -> Iterator[device.Bind]:
        start = self._addresses.places[step.value.name]
        for position, extent in enumerate(step.extents):
            place = self._place(start, position * step.value.type.dtype.nbytes)
            limit, symbol = self._checks.of_extent(extent, step)
            name = "" if symbol is None else symbol.name
            if symbol is not None:
                self._checks.bound.add(name)
            yield device.Bind(place, name, self._check(limit))

    def _branch(self, step: driver.Branch) -> device.Branch:
        then, otherwise = self._steps(step.then), self._steps(step.otherwise)
        joined = tuple(
            device.Joined(str(each.symbol), self._size(each.then), self._size(each.otherwise))
            for each in step.joined
        )
        self._checks.bound |= {each.name for each in joined}
        return device.Branch(self._at(step.condition), then, otherwise, joined)

    def _repeat(self, step: driver.Repeat) -> device.Repeat:
        trips = step.trips
        most = self._checks.of_trips(step)
        check = None if most is None else self._check(most)
        limits = [self._check(self._checks.of_grown(grown, step)) for grown in step.grown]
        initial = [self._size(grown.initial) for grown in step.grown]
        self._checks.bound |= {str(grown.symbol) for grown in step.grown}
        body = self._steps(step.body)
        carried = tuple(
            device.Carried(
                each.current.name,
                each.next.name,
                self._at(each.initial),
                *(
                    self._place(self._addresses.places[name])
                    for name in buffers_of(each.current.name)
                ),
            )
            for each in step.carried
        )
        slices = tuple(
            device.Slice(part.slice.name, self._at(part.whole), self._size(part.slice.type.nbytes))
            for part in (*step.read, *step.written)
        )
        grown = tuple(
            device.Grown(str(each.symbol), first, self._size(each.next), str(each.result), limit)
            for each, first, limit in zip(step.grown, initial, limits, strict=True)
        )
        count = "" if step.count is None else step.count.name
        self._checks.bound |= {count, *(each.result for each in grown)}
        return device.Repeat(
            None if trips is None or isinstance(trips, Value) else self._size(trips),
            self._at(trips) if isinstance(trips, Value) else None,
            None if step.condition is None else self._at(step.condition),
            None if step.again is None else self._at(step.again),
            self._at(step.iteration),
            carried,
            slices,
            body,
            count,
            check,
            grown,
        )

    def _check(self, limit: Limit) -> device.Check:
        demand = "" if limit.demands is None else limit.demands.value
        return device.Check(limit.number, self._size(limit.most), demand)

    def _has_spare(self, target: Value) -> bool:
        """Check whether a copy to a device may be extended to a multiple of a word without
        overwriting another value. It may if no other value in the same memory block ends beyond the
        copied value."""
        if target.type.dtype.nbytes % _WORD == 0 or self._program.space(target) == HOST:
            return False
        home = self._program.home(target)
        end = home.offset + target.type.nbytes
        ends = self._ends[home.name]
        return all(
            other == end or (isinstance(other, int) and isinstance(end, int) and other < end)
            for other in ends
        )

    @functools.cached_property
    def _ends(self) -> Mapping[str, set[Extent]]:
        """The end offsets of the values that steps use, by memory block."""
        ends: dict[str, set[Extent]] = collections.defaultdict(set)
        for value in values_of(self._program.steps):
            home = self._program.home(value)
            ends[home.name].add(home.offset + value.type.nbytes)
        return ends

    # -- places

    def _at(self, value: Value) -> device.Place:
        return self._place(self._addresses.places[value.name])

    def _place(self, place: Place, behind: int = 0) -> device.Place:
        match place.segment:
            case Segment.INPUT | Segment.OUTPUT:
                memory = f"{place.segment.value}{place.index}"
            case Segment.PARAMS | Segment.WORKSPACE:
                memory = place.segment.value
            case Segment.POINTER:
                memory = place.pointer
        return device.Place(memory, self._size(place.offset + behind, place.space), place.space)

    def _size(self, extent: Extent, space: str = HOST) -> Size:
        """Return an extent as plain data for the interpreter."""
        extent = substitute(extent, self._tops[space]) if self._tops[space] else extent
        return extent if isinstance(extent, int) else str(extent)


def _largest(sizes: Iterable[Size]) -> Size:
    first, *others = map(str, sizes)
    for other in others:
        first = f"max({first}, {other})"
    return first
