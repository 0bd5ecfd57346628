"""Compute the addresses that a driver program uses: of constants in the parameters, of values in
planned memory, and of the arguments of each kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from farrier.artifact.calls import CallArgument, CallRecord
from farrier.artifact.params import ParamArena
from farrier.ir.dim import Atom, Extent, Symbol, number, substitute, typical
from farrier.ir.graph import Value
from farrier.ir.types import Layout
from farrier.partition.packing import ALIGNMENT, aligned
from farrier.partition.plan_memory import (
    MemoryPlan,
    Place,
    Segment,
    buffers_of,
    plan_memory,
    scratch_of,
    slices_of,
)
from farrier.partition.program import (
    Bind,
    Branch,
    Call,
    Copy,
    DriverProgram,
    Fail,
    Launch,
    Repeat,
    Wait,
    steps_in,
)
from farrier.targets.interface import Interface
from farrier_device.program import HOST

_NONE: Mapping[str, int] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """An argument of a kernel that points to the values of its dims, as i64."""

    extents: tuple[Extent, ...]


Argument: TypeAlias = Place | Sizes


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCall:
    """A `Call` after addresses are assigned: a kernel, and the addresses of its arguments."""

    function: str
    args: tuple[Argument, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """A constant of a memory space: its bytes in the parameters, and its position among the bytes
    of all constants of that space."""

    space: str
    source: int
    target: int
    nbytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of all values in a driver program. `calls` maps the first output of each call
    to the addresses of the call's arguments. `places` maps the name of each value that other steps
    read or write to its place. `uploads` are the constants that are copied to device memories.

    An address may be an expression that contains symbols of `tops`. Each of these stands for the
    maximum of some extents (see `MemoryPlan`).
    """

    calls: Mapping[str, KernelCall]
    places: Mapping[str, Place]
    tops: Mapping[Symbol, tuple[Extent, ...]] = dataclasses.field(default_factory=dict)
    uploads: tuple[Upload, ...] = ()


def plan_spaces(
    program: DriverProgram,
    kernels: Mapping[str, Interface],
    threads: int,
    alignments: Mapping[str, int] = _NONE,
    *,
    lends: bool = False,
) -> dict[str, MemoryPlan]:
    """Return the memory plan of each space by name, the host's first.

    `kernels` maps task keys to interfaces. `alignments` maps spaces to alignments in bytes, 64 by
    default. `lends` is as for `plan_memory`.
    """
    scratch: dict[str, Extent] = {}
    slices: dict[str, Extent] = {}
    for call in program.calls:
        kernel = kernels[call.task]
        extents: dict[Atom, Extent] = dict(zip(kernel.dims, call.dims, strict=True))
        name = call.outputs[0].name
        if kernel.shared_bytes != 0:
            scratch[name] = substitute(kernel.shared_bytes, extents)
        if kernel.slice_bytes != 0:
            slices[name] = substitute(kernel.slice_bytes, extents)
    plans = {}
    for space in dict.fromkeys((HOST, *program.spaces.values())):
        here = {
            call.outputs[0].name
            for call in program.calls
            if program.space(call.outputs[0]) == space
        }
        plans[space] = plan_memory(
            program,
            {name: nbytes for name, nbytes in scratch.items() if name in here},
            {name: nbytes for name, nbytes in slices.items() if name in here},
            threads,
            space,
            alignments.get(space, ALIGNMENT),
            lends=lends,
        )
    return plans


def position_of(place: Place, inputs: int, outputs: int) -> int:
    """Return the position of the argument of the model's entry point in whose memory a place is.
    The model has `inputs` inputs and `outputs` outputs."""
    match place.segment:
        case Segment.INPUT:
            return place.index
        case Segment.OUTPUT:
            return inputs + place.index
        case Segment.PARAMS:
            return inputs + outputs
        case Segment.WORKSPACE:
            return inputs + outputs + 1
        case Segment.POINTER:
            raise AssertionError(f"{place.pointer} is in no argument")


def ends_of_copy(call: KernelCall) -> tuple[Place, Place] | None:
    """Return the places that the copy `call` reads and writes, if one is an input and the other an
    output of the model; else None. The caller of the model may pass the same address for both."""
    match call.args[:2]:
        case [Place(segment=Segment.INPUT) as source, Place(segment=Segment.OUTPUT) as target]:
            return source, target
        case _:
            return None


class Addressing:
    """The traversal that assigns addresses to the values of a program.

    Constants are added to `arena`, the packed parameters, when they are first used, and arrays of
    sizes to `sizes`; both may already contain those of an earlier program. The traversal also
    records each call in `records`. For a call on a device, the places in the record are in the
    memory of that device.
    """

    def __init__(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        memories: Mapping[str, MemoryPlan],
        arena: ParamArena,
        sizes: Iterable[int],
        alignments: Mapping[str, int] = _NONE,
    ) -> None:
        self.arena = arena
        self.records: list[CallRecord] = []
        self.sizes = [*sizes]
        self._program = program
        self._kernels = kernels
        self._alignments = alignments
        self._memories = memories
        self._memory = {n: place for plan in memories.values() for n, place in plan.places.items()}
        self._slice_steps = {
            name: step for plan in memories.values() for name, step in plan.slice_steps.items()
        }
        self._uploads: dict[tuple[str, int], Upload] = {}
        self._calls: dict[str, KernelCall] = {}
        self._places: dict[str, Place] = {}
        self._starts: dict[str, Place] = {}  # The first place of each pointer.
        self._sizes_at: dict[
            tuple[int, ...], int
        ] = {}  # Positions in `sizes`, by the sizes of a call.

    def addresses(self) -> Addresses:
        """Return all addresses, and add to `records` and `sizes`."""
        for step in steps_in(self._program.steps):
            match step:
                case Call():
                    self._calls[step.outputs[0].name] = self._call(step)
                    if step.count:
                        self._put(step.outputs[-1])
                case Launch(call):
                    self._calls[call.outputs[0].name] = self._call(call)
                case Copy(source, target):
                    self._put(source)
                    self._put(target)
                case Wait():
                    pass
                case Bind():
                    self._put(step.value)
                case Fail():
                    pass
                case Branch():
                    self._put(step.condition)
                case Repeat():
                    self._repeat(step)
        tops = self._memories[HOST].tops
        return Addresses(self._calls, self._places, tops, tuple(self._uploads.values()))

    def _call(self, call: Call) -> KernelCall:
        kernel = self._kernels[call.task]
        values = zip((*call.inputs, *call.outputs), kernel.params, strict=True)
        args: list[Argument] = [self._place(value, param.layout) for value, param in values]
        name = call.outputs[0].name
        step = self._slice_steps.get(name)
        if call.dims or step is not None:
            args.append(Sizes(call.dims if step is None else (*call.dims, step)))
        for own in (scratch_of(name), slices_of(name)):
            if own in self._memory:
                args.append(self._memory[own])
        self._record(call, kernel, args)
        return KernelCall(kernel.name, tuple(args))

    def _record(self, call: Call, kernel: Interface, args: Sequence[Argument]) -> None:
        if self._program.spaces:  # An interpreter has the sizes of a call in memory of its own.
            args = [each for each in args if not isinstance(each, Sizes)]
        nbytes = [typical(param.nbytes) for param in kernel.params]
        nbytes += [0] * (len(args) - len(nbytes))
        arguments = tuple(map(self._argument, args, nbytes))
        self.records.append(CallRecord(kernel.name, call.task, call.origin, arguments, call.runs))

    def _repeat(self, step: Repeat) -> None:
        for carried in step.carried:
            even, odd = buffers_of(carried.current.name)
            self._places |= {name: self._memory[name] for name in (even, odd)}
            self._starts[carried.current.name] = self._put(carried.initial)
            self._starts[carried.next.name] = self._places[even]
        for part in (*step.read, *step.written):
            self._starts[part.slice.name] = self._put(part.whole)
        for value in (step.trips, step.condition, step.again, step.iteration):
            if isinstance(value, Value):
                self._put(value)

    def _put(self, value: Value) -> Place:
        """Return the place of a value that a step other than a call reads or writes, and record it
        in the result."""
        self._places[value.name] = self._place(value)
        return self._places[value.name]

    def _place(self, value: Value, layout: Layout | None = None) -> Place:
        """Return the place of a value. If it is a constant, return the place of its copy in
        `layout`, which is the layout in which the kernel reads it."""
        place = self._memory[value.name]
        if place.segment is not Segment.PARAMS:
            return place
        constant = self._program.constants[place.index]
        is_whole = constant.value.type == value.type
        start = self.arena.add(constant, layout if is_whole else None)
        if place.space != HOST:
            nbytes = dataclasses.replace(
                constant.value.type, layout=layout if is_whole else None
            ).nbytes
            start = self._upload(place.space, start, number(nbytes))
        return dataclasses.replace(place, offset=place.offset + start)

    def _upload(self, space: str, source: int, nbytes: int) -> int:
        """Return the offset of a constant in the parameters of a space, adding the upload if it is
        new."""
        ends = [each.target + each.nbytes for each in self._uploads.values() if each.space == space]
        alignment = self._alignments.get(space, ALIGNMENT)
        start = number(aligned(max(ends, default=0), alignment))
        upload = Upload(space, source, start, nbytes)
        return self._uploads.setdefault((space, source), upload).target

    def _argument(self, argument: Argument, nbytes: int) -> CallArgument:
        """Return the place of an argument at the typical sizes; within a loop, in the first
        iteration."""
        inputs, outputs = len(self._program.inputs), len(self._program.outputs)
        if isinstance(argument, Sizes):
            values = tuple(map(typical, argument.extents))
            start = self._sizes_at.setdefault(values, len(self.sizes))
            if start == len(self.sizes):
                self.sizes.extend(values)
            return CallArgument(inputs + outputs + 2, 8 * start, 0)
        place, offset = argument, argument.offset
        while place.segment is Segment.POINTER:
            place = self._starts[place.pointer]
            offset += place.offset
        return CallArgument(position_of(place, inputs, outputs), typical(offset), nbytes)
