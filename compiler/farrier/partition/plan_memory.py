"""Assign memory to every value of an optimized graph: values that are not alive at the same time
share bytes.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, Symbol, evaluate, maximum, typical, upper
from farrier.ir.graph import Value
from farrier.partition.packing import ALIGNMENT, Block, aligned, busiest_step
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
)
from farrier.partition.queues import queue_of
from farrier.partition.stacking import packed, stacked
from farrier_device.program import HOST

GAP_BYTES = 256 << 10  # The reach of the hardware's prefetching, measured on Zen 5.
_MOST_SPREAD = 1.1  # The most growth of the workspace by gaps between the threads' slices.
_NONE: Mapping[str, Extent] = {}


class Segment(enum.StrEnum):
    """The argument of the model's entry in which a value is stored, or POINTER for a pointer of a
    loop."""

    INPUT = "input"
    OUTPUT = "output"
    PARAMS = "params"
    WORKSPACE = "workspace"
    POINTER = "pointer"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The address of a value.

    `index` is the number of the input, output or constant of the program, `pointer` the name of the
    loop variable if the segment is POINTER, and `offset` is in bytes from there. Constants are in
    the parameter arena, where offsets are assigned later. Parameters and workspace are those of
    `space`.
    """

    segment: Segment
    index: int = 0
    offset: Extent = 0
    pointer: str = ""
    space: str = HOST


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The addresses of all values.

    `places` maps the names of values to places, including the names that `scratch_of`, `slices_of`
    and `buffers_of` return. `slice_steps` maps the first output of a call to the distance in bytes
    between the slices of consecutive threads. `lower_bound` is the smallest number of bytes that
    any plan needs at the typical sizes: the values and slices alive at one step, without gaps.
    `busiest` is the call at that step; None if the program makes no call there.

    Offsets may contain the symbols `tops` in addition to the dims. Each top is the maximum of some
    extents over the dims and earlier tops. `most_bytes` is an upper bound of `workspace_bytes` in
    terms of the dims alone; the two are equal without tops.

    `lent` maps inputs and outputs to the offsets in the workspace at which the caller may place
    them, if the workspace has room for them.
    """

    places: Mapping[str, Place]
    slice_steps: Mapping[str, Extent]
    workspace_bytes: Extent
    most_bytes: Extent
    lower_bound: int
    tops: Mapping[Symbol, tuple[Extent, ...]]
    lent: Mapping[str, Extent] = dataclasses.field(default_factory=dict)
    busiest: Call | None = None

    def workspace_at(self, sizes: Mapping[str, int]) -> int:
        """Return the size of the workspace in bytes for these values of the dims, by name."""
        values = dict(sizes)
        for top, extents in self.tops.items():
            values[top.name] = max(evaluate(extent, values) for extent in extents)
        return evaluate(self.workspace_bytes, values)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """An arrangement of the threads' slices with gaps of `gap` bytes between them. If `behind` is
    true, the slices are stored after all values, at the same place for all calls. Otherwise they
    may share bytes with values that are not alive during the call."""

    gap: int
    behind: bool


_TIGHT = _Spread(0, behind=False)
_SPREADS = (
    _Spread(GAP_BYTES, behind=True),
    *(_Spread(GAP_BYTES >> halvings, behind=False) for halvings in range(4)),
)  # In the order of preference, the fastest first.


def plan_memory(
    program: DriverProgram,
    scratch: Mapping[str, Extent] = _NONE,
    slices: Mapping[str, Extent] = _NONE,
    threads: int = 1,
    space: str = HOST,
    alignment: int = ALIGNMENT,
    *,
    lends: bool = False,
) -> MemoryPlan:
    """Return the memory plan of a program of kernels for the values in a space.

    `scratch` maps the first output of a call to the bytes of temporary memory that the call needs,
    and `slices` to the bytes that each of `threads` threads needs. Offsets of values are multiples
    of `alignment` bytes, itself a multiple of 64. With `lends` the workspace has room for the
    outputs, and for the input of a model that has one: other values share these bytes while the
    inputs and outputs are not alive. Several inputs have no room, because some may be states, which
    the caller keeps from call to call.

    Slices are spread if that enlarges the workspace by at most a tenth, for two reasons. Loads with
    a large stride, one for each channel, make the processor prefetch lines beyond the end of a
    slice; if another core has just written those, it must fetch each of them again, which gaps
    avoid. And a line that another core wrote last is slow to read; with slices at one place after
    all values, each thread keeps its own lines from call to call.

    The time is linear in the length of the program: a value of a region is alive where its steps
    stand, and a value that a loop reads, carries or writes is alive during the whole loop. Raises
    CompilerError for an output without memory of its own; `fuse` prevents that.
    """
    lent = _lent(program) if lends and space == HOST else frozenset[str]()
    pack = functools.partial(_Packing.of, program, scratch, slices, threads, space, alignment, lent)
    chosen = tight = pack(_TIGHT)
    if slices and threads > 1:
        most = _MOST_SPREAD * tight.typical_bytes
        packings = map(pack, _SPREADS)
        chosen = next((packing for packing in packings if packing.typical_bytes <= most), tight)
    lower_bound, step = busiest_step(tight.blocks)
    return chosen.plan(lower_bound, tight.timeline.calls.get(step))


@dataclasses.dataclass(frozen=True)
class _Packing:
    """The memory blocks of a program, with their `offsets` and the `total` bytes at the typical
    sizes."""

    program: DriverProgram
    fixed: Mapping[str, Place]
    timeline: _Timeline
    blocks: Sequence[Block]
    offsets: Mapping[str, int]
    total: int
    steps: Mapping[str, Extent]  # Bytes from a thread's slice to the next one's.
    # The bytes of all slices behind the blocks; 0 if the slices are among the blocks.
    behind: Extent

    @classmethod
    def of(
        cls,
        program: DriverProgram,
        scratch: Mapping[str, Extent],
        slices: Mapping[str, Extent],
        threads: int,
        space: str,
        alignment: int,
        lent: frozenset[str],
        spread: _Spread,
    ) -> _Packing:
        fixed = _fixed_places(program, space)
        steps = {name: nbytes + spread.gap for name, nbytes in slices.items()}
        spans = {name: (threads - 1) * steps[name] + nbytes for name, nbytes in slices.items()}
        slices_among = _NONE if spread.behind else spans
        timeline = _Timeline(program, space, alignment, fixed, scratch, slices_among, lent)
        timeline.touch_lent(program.inputs)
        timeline.walk(program.steps)
        timeline.touch_lent(program.outputs)
        unowned = [place.index for name, place in fixed.items() if name in timeline.pointers]
        if unowned:
            raise CompilerError(f"output {program.outputs[unowned[0]].name} is what a loop carries")
        behind: Extent = 0
        if spread.behind:
            largest = functools.reduce(maximum, map(timeline.most, slices.values()))
            steps = dict.fromkeys(slices, largest + spread.gap)
            behind = (threads - 1) * (largest + spread.gap) + largest
        blocks = timeline.blocks()
        return cls(program, fixed, timeline, blocks, *packed(blocks), steps, behind)

    @property
    def typical_bytes(self) -> int:
        """The size of the workspace in bytes at the typical sizes."""
        return self.total + typical(self.behind)

    def plan(self, lower_bound: int, busiest: Call | None) -> MemoryPlan:
        """Return the memory plan for all sizes, derived from the packing at the typical sizes."""
        stack = stacked(self.blocks, self.offsets, self.total)
        space, places = self.timeline.space, dict(self.fixed)
        lent = {name: offset for name, offset in stack.offsets.items() if name in self.fixed}
        for name, offset in stack.offsets.items():
            if name not in lent:
                places[name] = Place(Segment.WORKSPACE, 0, offset, space=space)
        pointers = self.timeline.pointers
        places |= {name: Place(Segment.POINTER, pointer=name, space=space) for name in pointers}
        if self.behind != 0:
            behind = Place(Segment.WORKSPACE, 0, stack.nbytes, space=space)
            places |= {slices_of(name): behind for name in self.steps}
        for name, home in self.program.homes.items():
            if self.program.spaces.get(home.name, HOST) != space:
                continue
            # A value that nothing writes has no elements.
            place = places.get(home.name, Place(Segment.WORKSPACE, space=space))
            places[name] = dataclasses.replace(place, offset=place.offset + home.offset)
        return MemoryPlan(
            places=places,
            slice_steps=self.steps,
            workspace_bytes=stack.nbytes + self.behind,
            most_bytes=(self._all_bytes() if stack.tops else stack.nbytes) + self.behind,
            lower_bound=lower_bound,
            tops=stack.tops,
            lent=lent,
            busiest=busiest,
        )

    def _all_bytes(self) -> Extent:
        """The total number of bytes of all blocks if none of them share bytes."""
        sizes = (block.nbytes + ALIGNMENT - 1 for block in self.blocks)
        return functools.reduce(operator.add, sizes, 0)


def scratch_of(name: str) -> str:
    """Return the name, in a plan, of the temporary memory of the call whose first output is
    `name`."""
    return f"{name}.scratch"  # No value has such a name.


def slices_of(name: str) -> str:
    """Return the name, in a plan, of the first thread's slice in the call whose first output is
    `name`."""
    return f"{name}.slices"


def buffers_of(current: str) -> tuple[str, str]:
    """Return the names, in a plan, of the two buffers between which a carried value of a loop
    alternates."""
    return f"{current}.even", f"{current}.odd"


def _fixed_places(program: DriverProgram, space: str) -> dict[str, Place]:
    """Return the places of the values whose memory the caller provides (inputs, outputs and
    parameters), by value name."""
    places: dict[str, Place] = {}
    if space == HOST:
        places |= {value.name: Place(Segment.INPUT, i) for i, value in enumerate(program.inputs)}
    for i, constant in enumerate(program.constants):
        if program.space(constant.value) == space:
            places[constant.value.name] = Place(Segment.PARAMS, i, space=space)
    if space != HOST:
        return places
    for i, value in enumerate(program.outputs):
        home = program.home(value)
        if home.name in places or home.offset != 0:
            raise CompilerError(
                f"output {value.name} has no memory of its own: it is {home.name}'s"
            )
        places[home.name] = Place(Segment.OUTPUT, i)
    return places


def _lent(program: DriverProgram) -> frozenset[str]:
    """Return the names of the inputs and outputs whose memory the caller may take from the
    workspace."""
    inputs = program.inputs if len(program.inputs) == 1 else ()
    return frozenset(program.home(value).name for value in (*inputs, *program.outputs))


class _Timeline:
    """A traversal of a program in textual order that records the lifetime of each memory block."""

    def __init__(
        self,
        program: DriverProgram,
        space: str,
        alignment: int,
        fixed: Mapping[str, Place],
        scratch: Mapping[str, Extent],
        spans: Mapping[str, Extent],
        lent: frozenset[str],
    ) -> None:
        self._program = program
        self.space = space
        self._alignment = alignment
        self._fixed = fixed
        self._scratch = scratch
        self._spans = spans
        self._lent = lent
        self._step = 0
        self.calls: dict[int, Call] = {}  # The calls in this space, by step.
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._sizes: dict[str, Extent] = {}
        self._given = frozenset(symbol.name for symbol in program.dims)
        # The values in whose memory a pointer may point.
        self.pointers: dict[str, tuple[str, ...]] = {}
        # The blocks that the queues of other spaces read or write until a wait, by space.
        self._queued: dict[str, frozenset[str]] = {}

    def blocks(self) -> list[Block]:
        return [
            Block(name, self._padded(self._sizes[name]), first, self._last[name])
            for name, first in self._first.items()
            if name not in self._fixed or name in self._lent
        ]

    def touch_lent(self, values: Iterable[Value]) -> None:
        """Extend the lifetimes of inputs or outputs to this step, if they may be stored in the
        workspace."""
        for value in values:
            if self._program.home(value).name in self._lent:
                self._touch(value)

    def _padded(self, nbytes: Extent) -> Extent:
        """Return the size of a block rounded up so that the next block is aligned."""
        return nbytes if self._alignment == ALIGNMENT else aligned(nbytes, self._alignment)

    def walk(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._step += 1
            match step:
                case Call():
                    self._call(step, HOST)
                case Launch(call, space):
                    self._call(call, space)
                case Copy():
                    self._copy(step)
                case Wait(space):
                    self._keep(self._queued.pop(space, ()))
                case Bind():
                    self._touch(step.value)
                case Fail():
                    pass
                case Branch():
                    self._touch(step.condition)
                    before = dict(self._queued)
                    self.walk(step.then)
                    after, self._queued = self._queued, before
                    self.walk(step.otherwise)
                    self._queue(after)
                case Repeat():
                    self._repeat(step)

    def _copy(self, step: Copy) -> None:
        """Extend the lifetimes of source and target to this step; that of the one in the host until
        the device's queue has executed the copy."""
        for value in (step.source, step.target):
            self._touch(value)
        if self.space == HOST:
            names = (name for v in (step.source, step.target) for name in self._roots(v))
            held = frozenset(name for name in names if name in self._first)
            space = queue_of(step, self._program)
            self._queued[space] = self._queued.get(space, frozenset()) | held

    def _queue(self, others: Mapping[str, frozenset[str]]) -> None:
        """Add the blocks that are in use by queues at the end of another branch of the program."""
        for space, names in others.items():
            self._queued[space] = self._queued.get(space, frozenset()) | names

    def _keep(self, names: Iterable[str]) -> None:
        for name in names:
            self._last[name] = self._step

    def _call(self, step: Call, space: str) -> None:
        if space != self.space:
            return
        self.calls[self._step] = step
        for value in (*step.outputs, *step.inputs):
            self._touch(value)
        own = step.outputs[0].name
        if own in self._scratch:
            self._hold(scratch_of(own), self._scratch[own])
        if own in self._spans:
            self._hold(slices_of(own), self._spans[own])

    def _repeat(self, step: Repeat) -> None:
        start, before = self._step, dict(self._queued)
        for carried in step.carried:
            if self._program.space(carried.current) != self.space:
                continue
            buffers = buffers_of(carried.current.name)
            self.pointers[carried.current.name] = (*self._roots(carried.initial), *buffers)
            self.pointers[carried.next.name] = buffers
            for name in buffers:
                self._hold(name, carried.current.type.nbytes)
        for part in (*step.read, *step.written):
            if self._program.space(part.whole) == self.space:
                self.pointers[part.slice.name] = self._roots(part.whole)
        entering = [step.trips, step.condition, step.iteration]
        entering += [part.whole for part in (*step.read, *step.written)]
        for value in (*entering, *(carried.current for carried in step.carried)):
            if isinstance(value, Value):
                self._touch(value)
        self.walk(step.body)
        self._step += 1
        if step.again is not None:
            self._touch(step.again)
        self._queue(before)
        for names in self._queued.values():  # The wait may stand in the next iteration.
            self._keep(names)
            for name in names:
                self._first[name] = min(self._first[name], start)
        for name, first in self._first.items():
            if first <= start <= self._last[name]:
                self._last[name] = self._step

    def _touch(self, value: Value) -> None:
        """Extend the lifetime of the block of `value` to this step, if the value is stored in this
        space."""
        if self._program.space(value) != self.space:
            return
        reach = self._program.home(value).offset + value.type.nbytes
        for name in self._roots(value):
            self._hold(name, reach)

    def _hold(self, name: str, nbytes: Extent) -> None:
        self._first.setdefault(name, self._step)
        self._last[name] = self._step
        held = self._sizes.setdefault(name, 0)
        if nbytes != held:
            self._sizes[name] = maximum(held, self.most(nbytes))

    def most(self, nbytes: Extent) -> Extent:
        """Return an upper bound of the bytes of a block whose size the data decides."""
        return upper(nbytes, lambda symbol: symbol.name in self._given)

    def _roots(self, value: Value) -> tuple[str, ...]:
        """Return the names of the blocks in which a value may be stored."""
        name = self._program.home(value).name
        return self.pointers.get(name, (name,))
