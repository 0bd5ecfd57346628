"""Places every value of an optimized graph in memory: what is not alive together shares bytes."""

from __future__ import annotations

import bisect
import dataclasses
import enum
import functools
import random
from collections.abc import Iterable, Mapping, Sequence

from farrier.errors import CompilerError
from farrier.ir.dim import Extent, ceildiv, is_less, maximum, number, typical, upper
from farrier.ir.graph import Value
from farrier.partition.program import Bind, Branch, Call, DriverProgram, Fail, Repeat, Step

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_MOST_ATTEMPTS = 100
GAP_BYTES = 256 << 10  # what is fetched ahead is not further away: measured on Zen 5
_MOST_SPREAD = 1.1  # of the workspace with nothing between the threads' slices
_PAIRS = 5_000_000  # of blocks to be compared, in all attempts
_NONE: Mapping[str, Extent] = {}


class Segment(enum.StrEnum):
    """Which argument of the model's entry a value lies in, or that a pointer of a loop says it."""

    INPUT = "input"
    OUTPUT = "output"
    PARAMS = "params"
    WORKSPACE = "workspace"
    POINTER = "pointer"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: `index` says which input, output or constant of the program, `pointer`
    which value of a loop the pointer is, `offset` is bytes from there (the offsets of constants are
    the parameter arena's)."""

    segment: Segment
    index: int = 0
    offset: Extent = 0
    pointer: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`places` are by value name, those of `scratch_of`, `slices_of` and `buffers_of` included.
    `slice_steps` are bytes from a thread's slice to the next one's, by the name of the call's first
    output. No plan needs less than `lower_bound` bytes at the typical sizes: what is alive at once,
    slices with nothing between them included."""

    places: Mapping[str, Place]
    slice_steps: Mapping[str, Extent]
    workspace_bytes: Extent
    lower_bound: int


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Bytes that must stay from step `first` to step `last`, both included."""

    name: str
    nbytes: Extent
    first: int
    last: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """How the threads' slices lie: `gap` bytes from each other, and `behind` all values, at one
    place for all calls, or over values that are not alive."""

    gap: int
    behind: bool


_TIGHT = _Spread(0, behind=False)
_SPREADS = (
    _Spread(GAP_BYTES, behind=True),
    *(_Spread(GAP_BYTES >> halvings, behind=False) for halvings in range(4)),
)  # the quickest first


def plan_memory(
    program: DriverProgram,
    scratch: Mapping[str, Extent] = _NONE,
    slices: Mapping[str, Extent] = _NONE,
    threads: int = 1,
) -> MemoryPlan:
    """The plan for a program of kernels. `scratch` gives the bytes that a call needs for itself
    while it runs, by the name of its first output, and `slices` those that each of `threads`
    threads needs for itself.

    Slices are spread where the workspace grows by a tenth at most. Loads that walk a slice in large
    strides, one a channel, make the processor fetch lines several strides ahead, beyond the end;
    where another core has just written those, it has to get each of them back: so there are gaps.
    And lines that one core wrote last reach another slowly: at one place behind all values, each
    thread keeps its own from call to call.

    Time is linear over the text of the program: a region's values live where they stand, and what a
    loop reads, carries or writes lives as long as the loop. Raises CompilerError for an output that
    has no memory of its own; `fuse` sees to it that each has.
    """
    tight = _Packing.of(program, scratch, slices, threads, _TIGHT)
    chosen = tight
    if slices and threads > 1:
        most = _MOST_SPREAD * tight.typical_bytes
        spreads = (_Packing.of(program, scratch, slices, threads, each) for each in _SPREADS)
        chosen = next((found for found in spreads if found.typical_bytes <= most), tight)
    return chosen.plan(alive_at_once(tight.blocks))


@dataclasses.dataclass(frozen=True)
class _Packing:
    """The blocks of a program, `offsets` and `total` where sizes are typical."""

    program: DriverProgram
    fixed: Mapping[str, Place]
    timeline: _Timeline
    blocks: Sequence[Block]
    offsets: Mapping[str, int]
    total: int
    steps: Mapping[str, Extent]  # from a thread's slice to the next one's
    behind: Extent  # bytes of all slices behind the blocks; 0 where they are among them

    @classmethod
    def of(
        cls,
        program: DriverProgram,
        scratch: Mapping[str, Extent],
        slices: Mapping[str, Extent],
        threads: int,
        spread: _Spread,
    ) -> _Packing:
        fixed = _fixed_places(program)
        steps = {name: nbytes + spread.gap for name, nbytes in slices.items()}
        spans = {name: (threads - 1) * steps[name] + nbytes for name, nbytes in slices.items()}
        timeline = _Timeline(program, fixed, scratch, _NONE if spread.behind else spans)
        timeline.walk(program.steps)
        unowned = [place.index for name, place in fixed.items() if name in timeline.pointers]
        if unowned:
            raise CompilerError(f"output {program.outputs[unowned[0]].name} is what a loop carries")
        behind: Extent = 0
        if spread.behind:
            largest = functools.reduce(maximum, map(timeline.most, slices.values()))
            steps = dict.fromkeys(slices, largest + spread.gap)
            behind = (threads - 1) * (largest + spread.gap) + largest
        blocks = timeline.blocks()
        return cls(program, fixed, timeline, blocks, *_packed(blocks), steps, behind)

    @property
    def typical_bytes(self) -> int:
        """The workspace where sizes are typical."""
        return self.total + typical(self.behind)

    def plan(self, lower_bound: int) -> MemoryPlan:
        """The plan for any sizes."""
        offsets, total = _placed(self.blocks, self.offsets, self.total)
        places = dict(self.fixed)
        places |= {name: Place(Segment.WORKSPACE, 0, offset) for name, offset in offsets.items()}
        pointers = self.timeline.pointers
        places |= {name: Place(Segment.POINTER, pointer=name) for name in pointers}
        if self.behind != 0:
            places |= {slices_of(name): Place(Segment.WORKSPACE, 0, total) for name in self.steps}
        for name, home in self.program.homes.items():
            place = places.get(home.name, Place(Segment.WORKSPACE))  # of no elements, if unwritten
            places[name] = dataclasses.replace(place, offset=place.offset + home.offset)
        return MemoryPlan(places, self.steps, total + self.behind, lower_bound)


def scratch_of(name: str) -> str:
    """Whose place is that of the scratch memory of the call with that first output."""
    return f"{name}.scratch"  # no value is called so


def slices_of(name: str) -> str:
    """Whose place is that of the first thread's slice, for the call with that first output."""
    return f"{name}.slices"


def buffers_of(current: str) -> tuple[str, str]:
    """Whose places are those that what a loop carries takes turns in."""
    return f"{current}.even", f"{current}.odd"


def _fixed_places(program: DriverProgram) -> dict[str, Place]:
    """Places of what the caller owns, by the name of the value that holds the memory."""
    places = {value.name: Place(Segment.INPUT, i) for i, value in enumerate(program.inputs)}
    for i, constant in enumerate(program.constants):
        places[constant.value.name] = Place(Segment.PARAMS, i)
    for i, value in enumerate(program.outputs):
        home = program.home(value)
        if home.name in places or home.offset != 0:
            raise CompilerError(
                f"output {value.name} has no memory of its own: it is {home.name}'s"
            )
        places[home.name] = Place(Segment.OUTPUT, i)
    return places


class _Timeline:
    """Walks a program in the order of its text, and notes what is alive when."""

    def __init__(
        self,
        program: DriverProgram,
        fixed: Mapping[str, Place],
        scratch: Mapping[str, Extent],
        spans: Mapping[str, Extent],
    ) -> None:
        self._program = program
        self._fixed = fixed
        self._scratch = scratch
        self._spans = spans
        self._step = 0
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._sizes: dict[str, Extent] = {}
        self._given = frozenset(symbol.name for symbol in program.dims)
        # The values in whose memory a pointer may point.
        self.pointers: dict[str, tuple[str, ...]] = {}

    def blocks(self) -> list[Block]:
        return [
            Block(name, self._sizes[name], first, self._last[name])
            for name, first in self._first.items()
            if name not in self._fixed
        ]

    def walk(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self._step += 1
            match step:
                case Call():
                    self._call(step)
                case Bind():
                    self._touch(step.value)
                case Fail():
                    pass
                case Branch():
                    self._touch(step.condition)
                    self.walk(step.then)
                    self.walk(step.otherwise)
                case Repeat():
                    self._repeat(step)

    def _call(self, step: Call) -> None:
        for value in (*step.outputs, *step.inputs):
            self._touch(value)
        own = step.outputs[0].name
        if own in self._scratch:
            self._hold(scratch_of(own), self._scratch[own])
        if own in self._spans:
            self._hold(slices_of(own), self._spans[own])

    def _repeat(self, step: Repeat) -> None:
        start = self._step
        for carried in step.carried:
            buffers = buffers_of(carried.current.name)
            self.pointers[carried.current.name] = (*self._roots(carried.initial), *buffers)
            self.pointers[carried.next.name] = buffers
            for name in buffers:
                self._hold(name, carried.current.type.nbytes)
        for part in (*step.read, *step.written):
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
        for name, first in self._first.items():
            if first <= start <= self._last[name]:
                self._last[name] = self._step

    def _touch(self, value: Value) -> None:
        """Keeps what `value` lies in alive until this step."""
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
        """What data decides takes what it may need at most."""
        return upper(nbytes, lambda symbol: symbol.name in self._given)

    def _roots(self, value: Value) -> tuple[str, ...]:
        """The blocks in which a value may lie."""
        name = self._program.home(value).name
        return self.pointers.get(name, (name,))


def pack(blocks: Sequence[Block]) -> tuple[dict[str, Extent], Extent]:
    """Offsets that keep blocks alive at one step apart whatever the sizes, and the bytes they take
    in all: packed where sizes are typical, and at others in the same order."""
    return _placed(blocks, *_packed(blocks))


def _packed(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets and the bytes taken in all where sizes are typical."""
    return pack_blocks(
        [dataclasses.replace(block, nbytes=typical(_aligned(block.nbytes))) for block in blocks]
    )


def _placed(
    blocks: Sequence[Block], offsets: Mapping[str, int], total: int
) -> tuple[dict[str, Extent], Extent]:
    """Offsets and the bytes taken in all at any sizes, given those where sizes are typical."""
    if all(isinstance(block.nbytes, int) for block in blocks):
        return dict(offsets), total
    return _stacked(sorted(blocks, key=lambda b: (offsets[b.name], typical(b.nbytes), b.name)))


def _stacked(blocks: Sequence[Block]) -> tuple[dict[str, Extent], Extent]:
    """Each block on top of those before it that are alive with it: they lie in that order at any
    sizes, and where the order is that of a packing, they are as close as in it."""
    offsets: dict[str, Extent] = {}
    ends: dict[str, Extent] = {}
    covered: set[str] = set()  # ends below another one's
    for position, block in enumerate(blocks):
        below: list[Block] = []
        for other in reversed(blocks[:position]):
            # What lies under another one that is alive with both ends below that one's end.
            if _meet(other, block) and not any(_meet(other, above) for above in below):
                below.append(other)
        offsets[block.name] = _highest_end([ends[other.name] for other in below])
        ends[block.name] = offsets[block.name] + _aligned(block.nbytes)
        covered.update(other.name for other in below)
    return offsets, _highest_end([ends[b.name] for b in blocks if b.name not in covered])


def _meet(one: Block, other: Block) -> bool:
    """Whether two blocks are alive at one step."""
    return one.first <= other.last and other.first <= one.last


def _highest_end(ends: Sequence[Extent]) -> Extent:
    """The largest of some extents; of those that another one always reaches nothing is left."""
    found: list[Extent] = []
    for end in dict.fromkeys(ends):
        if not any(is_less(end, other + 1) for other in found):
            found = [other for other in found if not is_less(other, end + 1)] + [end]
    return functools.reduce(maximum, found) if found else 0


def pack_blocks(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets of blocks of known sizes that keep those alive at one step apart, and the bytes they
    take in all.

    Greedy by size, each into the smallest gap that holds it (Pisarchyk and Lee, "Efficient Memory
    Management for Deep Neural Net Inference", 2020, section 5.2). While that takes more than is
    alive at once, the blocks that end highest go first in the next attempt (Joslin and Clements,
    "Squeaky Wheel Optimization", 1999). Where that goes round in circles, single blocks change
    their turn in the best order found, half of the time one of those that end highest.
    """
    order = sorted(blocks, key=lambda b: (-typical(b.nbytes), b.first, b.name))
    least = alive_at_once(blocks)
    offsets, reach = _placed_in(order)
    best_order, best, total = order, offsets, reach
    attempts = _attempts(len(blocks))
    rng = random.Random(0)  # the same plan each time
    for attempt in range(attempts):
        if total == least:
            break
        if attempt < attempts // 2:
            top = {block.name for block in _highest(order, offsets, reach)}
            order = sorted(order, key=lambda b: b.name not in top)
        else:
            among = best_order if rng.random() < 0.5 else _highest(best_order, best, total)
            moved = rng.choice(among)
            order = [block for block in best_order if block is not moved]
            order.insert(rng.randrange(len(blocks)), moved)
        offsets, reach = _placed_in(order)
        if reach <= total:
            best_order, best, total = order, offsets, reach
    return best, total


def _highest(order: Sequence[Block], offsets: Mapping[str, int], reach: int) -> list[Block]:
    """The blocks that end where memory does."""
    return [b for b in order if offsets[b.name] + number(_aligned(b.nbytes)) == reach]


def _attempts(blocks: int) -> int:
    """How many orders to try, within about a second."""
    return min(_MOST_ATTEMPTS, _PAIRS // max(blocks, 1) ** 2)


def _placed_in(order: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets by name, each block in turn into the smallest gap, and the bytes they take."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Block]] = []  # offset, end, block; by offset
    total = 0
    for block in order:
        size = number(_aligned(block.nbytes))
        overlapping = (
            (start, end)
            for start, end, other in placed
            if other.first <= block.last and block.first <= other.last
        )
        offset = _best_gap(overlapping, size)
        offsets[block.name] = offset
        total = max(total, offset + size)
        bisect.insort(placed, (offset, offset + size, block), key=lambda item: item[0])
    return offsets, total


def _best_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap that holds `size`; `taken` are ranges sorted by start."""
    best: tuple[int, int] | None = None
    reach = 0
    for start, end in taken:
        gap = start - reach
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, reach)
        reach = max(reach, end)
    return best[1] if best is not None else reach


def alive_at_once(blocks: Sequence[Block]) -> int:
    """The most bytes that any step needs, at the typical sizes."""
    change: dict[int, int] = {}
    for block in blocks:
        size = typical(_aligned(block.nbytes))
        change[block.first] = change.get(block.first, 0) + size
        change[block.last + 1] = change.get(block.last + 1, 0) - size
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most


def _aligned(nbytes: Extent) -> Extent:
    return ceildiv(nbytes, ALIGNMENT) * ALIGNMENT
