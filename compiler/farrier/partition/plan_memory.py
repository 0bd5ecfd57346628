"""Place every value of an optimized graph in memory: values that are not alive at once share
bytes."""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, Symbol, evaluate, maximum, typical, upper
from farrier.ir.graph import Value
from farrier.partition.packing import ALIGNMENT, Block, aligned, alive_at_once
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
    """The argument of the model's entry that holds a value, or a pointer of a loop."""

    INPUT = "input"
    OUTPUT = "output"
    PARAMS = "params"
    WORKSPACE = "workspace"
    POINTER = "pointer"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """The address of a value: `index` is the number of the input, output or constant of the
    program, `pointer` the name of the loop's value that is the pointer, `offset` in bytes from
    there (those of constants are in the parameter arena). Parameters and workspace are those of
    `space`."""

    segment: Segment
    index: int = 0
    offset: Extent = 0
    pointer: str = ""
    space: str = HOST


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The addresses of all values: `places` are by value name, those of `scratch_of`, `slices_of`
    and `buffers_of` included. `slice_steps` are bytes from a thread's slice to the next one's, by
    the name of the call's first output. `lower_bound` is the least bytes of any plan at the typical
    sizes: the values and slices, without gaps, that are alive at once.

    Offsets may contain the symbols of `tops` in addition to the dims. Each top is the largest of
    some extents over the dims and earlier tops. `most_bytes` is over the dims alone and at least
    `workspace_bytes`; the two are equal without tops.

    `lent` are the offsets in the workspace at which the caller may place inputs and outputs, by
    name, if the workspace has room for them.
    """

    places: Mapping[str, Place]
    slice_steps: Mapping[str, Extent]
    workspace_bytes: Extent
    most_bytes: Extent
    lower_bound: int
    tops: Mapping[Symbol, tuple[Extent, ...]]
    lent: Mapping[str, Extent] = dataclasses.field(default_factory=dict)

    def workspace_at(self, sizes: Mapping[str, int]) -> int:
        """Return the bytes of workspace for these sizes of the dims, by name."""
        values = dict(sizes)
        for top, extents in self.tops.items():
            values[top.name] = max(evaluate(extent, values) for extent in extents)
        return evaluate(self.workspace_bytes, values)


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """A placement of the threads' slices: `gap` bytes apart, and either `behind` all values, at one
    place for all calls, or in the place of values that are not alive."""

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
    """Return the memory plan of a program of kernels for the values in a space. `scratch` has the
    bytes that a call needs for itself while it runs, by the name of its first output, and `slices`
    the bytes that each of `threads` threads needs for itself. Offsets of whole values are multiples
    of `alignment` bytes, itself a multiple of 64. With `lends` the workspace has room for the
    outputs, and for the input of a model that has one: other values share it while these are not
    alive. Of several inputs some may be states, which the caller keeps from call to call.

    Slices are spread if the workspace grows by a tenth at most, for two reasons. Loads with a large
    stride, one for each channel, make the processor prefetch lines beyond the end of a slice; if
    another core has just written those, it must fetch each of them again, which gaps avoid. And a
    line that another core wrote last is slow to read; with slices at one place behind all values,
    each thread keeps its own lines from call to call.

    The time is linear in the text of the program: a region's values live where they stand, and the
    values that a loop reads, carries or writes live during the whole loop. Raises CompilerError for
    an output without memory of its own; `fuse` prevents that.
    """
    lent = _lent(program) if lends and space == HOST else frozenset[str]()
    pack = functools.partial(_Packing.of, program, scratch, slices, threads, space, alignment, lent)
    chosen = tight = pack(_TIGHT)
    if slices and threads > 1:
        most = _MOST_SPREAD * tight.typical_bytes
        packings = map(pack, _SPREADS)
        chosen = next((packing for packing in packings if packing.typical_bytes <= most), tight)
    return chosen.plan(alive_at_once(tight.blocks))


@dataclasses.dataclass(frozen=True)
class _Packing:
    """The blocks of a program, with `offsets` and `total` at the typical sizes."""

    program: DriverProgram
    fixed: Mapping[str, Place]
    timeline: _Timeline
    blocks: Sequence[Block]
    offsets: Mapping[str, int]
    total: int
    steps: Mapping[str, Extent]  # From a thread's slice to the next one's.
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
        """The bytes of the workspace at the typical sizes."""
        return self.total + typical(self.behind)

    def plan(self, lower_bound: int) -> MemoryPlan:
        """Return the plan for any sizes."""
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
        )

    def _all_bytes(self) -> Extent:
        """The bytes of all blocks without sharing."""
        sizes = (block.nbytes + ALIGNMENT - 1 for block in self.blocks)
        return functools.reduce(operator.add, sizes, 0)


def scratch_of(name: str) -> str:
    """Return the name, in a plan, of the scratch memory of the call with that first output."""
    return f"{name}.scratch"  # No value has such a name.


def slices_of(name: str) -> str:
    """Return the name, in a plan, of the first thread's slice for the call with that first
    output."""
    return f"{name}.slices"


def buffers_of(current: str) -> tuple[str, str]:
    """Return the names, in a plan, of the two buffers that a carried value of a loop alternates
    between."""
    return f"{current}.even", f"{current}.odd"


def _fixed_places(program: DriverProgram, space: str) -> dict[str, Place]:
    """Return the places of memory that the caller owns, by the name of the value that holds it."""
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
    """Return the names of the values whose memory may be a part of the workspace."""
    inputs = program.inputs if len(program.inputs) == 1 else ()
    return frozenset(program.home(value).name for value in (*inputs, *program.outputs))


class _Timeline:
    """Walk a program in the order of its text, and record the lifetime of each block."""

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
        """Keep inputs or outputs alive here, if their memory is a part of the workspace."""
        for value in values:
            if self._program.home(value).name in self._lent:
                self._touch(value)

    def _padded(self, nbytes: Extent) -> Extent:
        """Return the bytes of a block after which another one is aligned."""
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
        """Keep both ends alive, the one in the host until the queue has come to the copy."""
        for value in (step.source, step.target):
            self._touch(value)
        if self.space == HOST:
            names = (name for v in (step.source, step.target) for name in self._roots(v))
            held = frozenset(name for name in names if name in self._first)
            space = queue_of(step, self._program)
            self._queued[space] = self._queued.get(space, frozenset()) | held

    def _queue(self, others: Mapping[str, frozenset[str]]) -> None:
        """Add the blocks that are queued on another way through the program."""
        for space, names in others.items():
            self._queued[space] = self._queued.get(space, frozenset()) | names

    def _keep(self, names: Iterable[str]) -> None:
        for name in names:
            self._last[name] = self._step

    def _call(self, step: Call, space: str) -> None:
        if space != self.space:
            return
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
        """Keep the block of `value` alive until this step, if it is in the space."""
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
        """Return the most bytes that a block needs if the data decides its size."""
        return upper(nbytes, lambda symbol: symbol.name in self._given)

    def _roots(self, value: Value) -> tuple[str, ...]:
        """Return the blocks that may hold a value."""
        name = self._program.home(value).name
        return self.pointers.get(name, (name,))
