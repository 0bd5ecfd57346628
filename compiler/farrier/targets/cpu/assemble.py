"""Joins compiled kernels into one model: packed parameters, planned memory, one entry point."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from farrier.artifact.calls import CallArgument, CallRecord
from farrier.artifact.params import ParamArena
from farrier.ir.control import Grown, symbol_of
from farrier.ir.dim import Atom, Extent, Symbol, substitute, symbols, typical, upper
from farrier.ir.graph import Value
from farrier.ir.types import Layout
from farrier.partition.program import Bind, Branch, Call, Fail, Program, Repeat, Step
from farrier.passes import MemoryPlan, plan_memory
from farrier.passes.plan_memory import Place, buffers_of, scratch_of, slices_of
from farrier.passes.plan_memory import Segment as Where
from farrier.targets import Target
from farrier.targets.cpu.codegen import compile_text, emit_entry, entry, library
from farrier.targets.cpu.codegen.entry import (
    ENTRY,
    WORKSPACE_BYTES,
    HotEntry,
    Input,
    Output,
    Params,
    Pointer,
    Sizes,
    Workspace,
    emit_dispatch,
    emit_workspace_bytes,
    position_of,
)
from farrier.targets.interface import Interface
from farrier.targets.linked import Check, LinkedModel

__all__ = ["ENTRY", "LinkedModel", "Plan", "assemble", "plan"]

GENERAL = f"{ENTRY}.any"  # for all sizes, where hot ones have code of their own


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where everything of a model lies, before its code is linked."""

    inputs: tuple[int, ...]  # bytes of each, at the typical sizes
    outputs: tuple[int, ...]
    arena: ParamArena
    memory: MemoryPlan
    max_threads: int
    steps: tuple[entry.Step, ...]
    calls: tuple[CallRecord, ...]  # those in the steps, for the profiler
    dims: tuple[Symbol, ...]  # what the caller says
    capacities: tuple[Symbol, ...]  # the last of these
    counted: tuple[Symbol, ...]  # what the entry says
    checks: tuple[Check, ...]  # by number
    sizes: tuple[int, ...]  # typical values of both, then those of calls, which records point to
    usual: Mapping[str, int]  # typical values of what the entry finds out, by symbol

    def entry(self, target: Target, name: str = ENTRY, dims: Sequence[Symbol] = ()) -> bytes:
        """The object of the entry point, under that name; `dims` are those that a caller says where
        this plan is for one size of them."""
        return self._entry(target, name, dims or self.dims)

    def measured_entry(self, target: Target, name: str) -> bytes:
        """As `entry`, for any memory: what values decide has its typical size, and nothing is
        checked."""
        return self._entry(target, name, self.dims, self.usual)

    def _entry(
        self,
        target: Target,
        name: str,
        dims: Sequence[Symbol],
        usual: Mapping[str, int] | None = None,
    ) -> bytes:
        text = emit_entry(
            self.steps,
            len(self.inputs),
            len(self.outputs),
            name,
            dims,
            self.counted,
            usual,
        )
        return compile_text(text, target)

    @property
    def params_bytes(self) -> int:
        return self.arena.nbytes

    def stands_for(self, other: Plan) -> bool:
        """Whether it takes and finds out, beside sizes of inputs, what `other` does."""
        told = [[s.name for s in (*p.capacities, *p.counted)] for p in (self, other)]
        return told[0] == told[1]

    def given(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """What a caller says of `sizes`, by symbol: those of its dims, in the entry's order."""
        return tuple(sizes[dim.name] for dim in self.dims if dim not in self.capacities)

    @property
    def symbols(self) -> set[str]:
        """The kernels that it calls."""
        return {call.function for call in self.calls}


def plan(
    program: Program,
    kernels: Mapping[str, Interface],
    target: Target,
    threads: int,
    beside: Plan | None = None,
) -> Plan:
    """Places the memory of `program`, with room for `threads` threads and for every core of the
    target. `kernels` are by task key; constants, sizes and checks are placed beside those of the
    plan `beside`."""
    most = max(threads, target.cores)
    scratch: dict[str, Extent] = {}
    slices: dict[str, Extent] = {}
    for call in program.calls:
        kernel = kernels[call.task]
        told: dict[Atom, Extent] = dict(zip(kernel.dims, call.dims, strict=True))
        name = call.outputs[0].name
        if kernel.shared_bytes != 0:
            scratch[name] = substitute(kernel.shared_bytes, told)
        if kernel.slice_bytes != 0:
            slices[name] = substitute(kernel.slice_bytes, told)
    memory = plan_memory(program, scratch, slices, most)
    if beside is None:
        typicals = [symbol.typical for symbol in (*program.dims, *program.counted)]
        # The size that fails a check: of this program, or of one for sizes of its dims.
        typicals += [0] if program.has_checks or program.dims else []
        driver = _Driver(program, kernels, memory, ParamArena(), typicals, ())
    else:
        driver = _Driver(program, kernels, memory, beside.arena, beside.sizes, beside.checks)
    return Plan(
        inputs=tuple(typical(value.type.nbytes) for value in program.inputs),
        outputs=tuple(typical(program.room(value)) for value in program.outputs),
        steps=driver.steps(program.steps),
        calls=tuple(driver.records),
        dims=program.dims,
        capacities=program.capacities,
        counted=program.counted,
        checks=tuple(driver.checks),
        sizes=tuple(driver.sizes),
        usual={symbol.name: symbol.typical for symbol in program.symbols},
        arena=driver.arena,
        memory=memory,
        max_threads=most,
    )


def assemble(
    planned: Plan,
    objects: Sequence[bytes],
    target: Target,
    hot: Mapping[tuple[int, ...], Plan] | None = None,
) -> LinkedModel:
    """Links a model's kernels, and packs its parameters. `hot` are plans of the same model, each
    beside the one before, for single sizes of its dims; what is recorded of calls is the first
    one's."""
    hot = hot or {}
    plans = (planned, *hot.values())
    with ThreadPoolExecutor(1) as beside:
        packed = beside.submit(planned.arena.pack)
        library = _library(planned, objects, target, hot)
        params = packed.result()
    shown = next(iter(hot.values()), planned)
    return LinkedModel(
        library=library,
        params=params,
        bytes_of=planned.arena.bytes_of,
        workspace_bytes=max(typical(one.memory.workspace_bytes) for one in plans),
        workspaces=tuple(one.memory.workspace_bytes for one in plans),
        dims=planned.dims,
        capacities=planned.capacities,
        counted=planned.counted,
        checks=plans[-1].checks,
        sizes=shown.sizes,
        max_threads=planned.max_threads,
        memory=planned.memory,
        calls=shown.calls,
        entries=(ENTRY, GENERAL) if hot else (ENTRY,),
    )


def _library(
    planned: Plan, objects: Sequence[bytes], target: Target, hot: Mapping[tuple[int, ...], Plan]
) -> bytes:
    """The shared library of a model, with its entry points and what they need."""
    entries = []
    made = [*objects]
    for number, (sizes, one) in enumerate(hot.items()):
        name = f"{ENTRY}.hot{number}"
        entries.append(HotEntry(sizes, name, one.memory.workspace_bytes))
        made.append(one.entry(target, name, planned.dims))
    made.append(planned.entry(target, GENERAL if hot else ENTRY))
    if hot:
        sides = len(planned.inputs), len(planned.outputs)
        made.append(compile_text(emit_dispatch(*sides, entries, GENERAL), target))
    shown = next(iter(hot.values()), planned)
    # The kernels are seen from outside too, so that a profiler can call them one by one.
    exports = [ENTRY, *sorted(shown.symbols), *([GENERAL] if hot else [])]
    if planned.dims:
        text = emit_workspace_bytes(planned.memory.workspace_bytes, planned.dims, entries)
        made.append(compile_text(text, target))
        exports.append(WORKSPACE_BYTES)
    return library(made, exports, target)


class _Driver:
    """The steps of a program with addresses in place of values; constants are placed as they are
    met."""

    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, Interface],
        memory: MemoryPlan,
        arena: ParamArena,
        sizes: Iterable[int],
        checks: Iterable[Check],
    ) -> None:
        self.arena = arena
        self.records: list[CallRecord] = []
        self.checks = [*checks]
        self._program = program
        self._kernels = kernels
        self._memory = memory
        self._starts: dict[str, entry.Address] = {}  # where each pointer points at first
        self.sizes = [*sizes]
        self._given = frozenset(symbol.name for symbol in program.dims)
        self._bound = set(self._given)  # the names of symbols that are known at a step
        self._sizes_at: dict[tuple[int, ...], int] = {}  # where in `sizes` those of a call are

    def steps(self, steps: Iterable[Step]) -> tuple[entry.Step, ...]:
        return tuple(made for step in steps for made in self._made(step))

    def _made(self, step: Step) -> Iterator[entry.Step]:
        match step:
            case Call():
                yield self._call(step)
            case Bind():
                yield from self._bind(step)
            case Fail(reason, origin):
                self.checks.append(Check(0, True, origin, reason))
                yield entry.Fail(len(self.checks) - 1)
            case Branch(condition, then, otherwise, joined):
                sizes = tuple((str(one.symbol), one.then, one.otherwise) for one in joined)
                address = self._address(condition)
                yield entry.Branch(address, self.steps(then), self.steps(otherwise), sizes)
                self._bound.update(symbol for symbol, *_ in sizes)
            case Repeat():
                yield self._repeat(step)

    def _bind(self, step: Bind) -> Iterator[entry.Bind]:
        segment, offset = self._address(step.value)
        for position, extent in enumerate(step.extents):
            address = (segment, offset + position * step.value.type.dtype.nbytes)
            symbol = symbol_of(extent)
            if step.is_check or symbol is None or symbol.name in self._bound:
                limit = self._limit(extent, step.origin, step.reason, is_exact=True)
                yield entry.Bind(address, "", limit)
            else:
                self._bound.add(symbol.name)
                limit = self._limit(symbol.high, step.origin, step.reason)
                yield entry.Bind(address, symbol.name, limit)

    def _limit(
        self, most: Extent, origin: str, reason: str = "", is_exact: bool = False
    ) -> entry.Limit:
        """A check of its own. What is no exact size is at most what there is room for, and what
        sizes found before allow."""
        room = most
        if not is_exact:
            room = upper(most, lambda symbol: symbol.name in self._given)
            most = upper(most, lambda symbol: symbol.name in self._bound)
        self.checks.append(Check(room, is_exact, origin, reason))
        return entry.Limit(len(self.checks) - 1, most, is_exact)

    def _call(self, call: Call) -> entry.KernelCall:
        kernel = self._kernels[call.task]
        values = zip((*call.inputs, *call.outputs), kernel.params, strict=True)
        args: list[entry.Address | Sizes]
        args = [self._address(value, param.layout) for value, param in values]
        name = call.outputs[0].name
        step = self._memory.slice_steps.get(name)
        if call.dims or step is not None:
            args.append(Sizes(call.dims if step is None else (*call.dims, step)))
        for own in (scratch_of(name), slices_of(name)):
            if own in self._memory.places:
                args.append(_segment(self._memory.places[own]))
        nbytes = [typical(param.nbytes) for param in kernel.params]
        nbytes += [0] * (len(args) - len(nbytes))
        arguments = tuple(map(self._argument, args, nbytes))
        self.records.append(CallRecord(kernel.name, call.task, call.origin, arguments, call.runs))
        count = (call.count, self._address(call.outputs[-1])) if call.count else None
        self._bound.add(call.count)
        return entry.KernelCall(kernel.name, tuple(args), call.needed, count)

    def _repeat(self, step: Repeat) -> entry.Repeat:
        carried = []
        for one in step.carried:
            even, odd = (
                _segment(self._memory.places[name]) for name in buffers_of(one.current.name)
            )
            initial = self._address(one.initial)
            self._starts[one.current.name] = initial
            self._starts[one.next.name] = even
            carried.append(entry.Carried(one.current.name, one.next.name, initial, (even, odd)))
        slices = []
        for part in (*step.read, *step.written):
            whole = self._address(part.whole)
            self._starts[part.slice.name] = whole
            slices.append(entry.Slice(part.slice.name, whole, part.slice.type.nbytes))
        trips = self._address(step.trips) if isinstance(step.trips, Value) else step.trips
        self._bound.update(str(one.symbol) for one in step.grown)
        made = entry.Repeat(
            trips,
            None if step.condition is None else self._address(step.condition),
            None if step.again is None else self._address(step.again),
            self._address(step.iteration),
            tuple(carried),
            tuple(slices),
            self.steps(step.body),
            step.count.name if step.count else "",
            self._limit_of(step),
            tuple(self._grown(one, step.origin) for one in step.grown),
        )
        self._bound.update(str(one.result) for one in step.grown)
        self._bound.update([] if step.count is None else [step.count.name])
        return made

    def _limit_of(self, step: Repeat) -> entry.Limit | None:
        """How often a loop may run, where no size says that."""
        if step.count is None:
            return None
        most = upper(step.count.high, lambda symbol: symbol.name in self._given)
        has_room = any(symbol in self._program.capacities for symbol in symbols((most,)))
        return self._limit(most, step.origin) if has_room else None

    def _grown(self, one: Grown, origin: str) -> entry.Grown:
        symbol = symbol_of(one.symbol)
        assert symbol is not None
        limit = self._limit(symbol.high, origin)
        return entry.Grown(symbol.name, one.initial, one.next, str(one.result), limit)

    def _address(self, value: Value, layout: Layout | None = None) -> entry.Address:
        """Where a value lies; a constant in the `layout` in which it is read."""
        place = self._memory.places[value.name]
        if place.segment is Where.PARAMS:
            constant = self._program.constants[place.index]
            is_whole = constant.value.type == value.type
            return Params(), place.offset + self.arena.add(constant, layout if is_whole else None)
        return _segment(place)

    def _argument(self, argument: entry.Address | Sizes, nbytes: int) -> CallArgument:
        """Where an argument lies at the typical sizes, in a loop's first iteration."""
        inputs, outputs = len(self._program.inputs), len(self._program.outputs)
        if isinstance(argument, Sizes):
            values = tuple(map(typical, argument.extents))
            start = self._sizes_at.setdefault(values, len(self.sizes))
            if start == len(self.sizes):
                self.sizes.extend(values)
            return CallArgument(inputs + outputs + 2, 8 * start, 0)
        segment, offset = argument
        while isinstance(segment, Pointer):
            segment, start_of = self._starts[segment.name]
            offset += start_of
        return CallArgument(position_of(segment, inputs, outputs), typical(offset), nbytes)


def _segment(place: Place) -> entry.Address:
    match place.segment:
        case Where.INPUT:
            return Input(place.index), place.offset
        case Where.OUTPUT:
            return Output(place.index), place.offset
        case Where.PARAMS:
            return Params(), place.offset
        case Where.WORKSPACE:
            return Workspace(), place.offset
        case Where.POINTER:
            return Pointer(place.pointer), place.offset
