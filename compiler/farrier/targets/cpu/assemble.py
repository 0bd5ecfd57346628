"""Join compiled kernels into one model: packed parameters, planned memory, one entry point."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from farrier.artifact.calls import CallArgument, CallRecord
from farrier.artifact.params import ParamArena
from farrier.ir.dim import Atom, Extent, Symbol, substitute, typical
from farrier.ir.graph import Value
from farrier.ir.types import Layout
from farrier.partition.plan_memory import (
    MemoryPlan,
    Place,
    Segment,
    buffers_of,
    plan_memory,
    scratch_of,
    slices_of,
)
from farrier.partition.program import Bind, Branch, Call, DriverProgram, Fail, Repeat, steps_in
from farrier.targets import Target
from farrier.targets.cpu.codegen import compile_text, library
from farrier.targets.cpu.codegen.entry import (
    ENTRY,
    WORKSPACE_BYTES,
    Argument,
    Entry,
    HotEntry,
    KernelCall,
    Placement,
    Sizes,
    emit_dispatch,
    emit_entry,
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

    program: DriverProgram
    inputs: tuple[int, ...]  # bytes of each, at the typical sizes
    outputs: tuple[int, ...]
    arena: ParamArena
    memory: MemoryPlan
    placement: Placement
    max_threads: int
    calls: tuple[CallRecord, ...]  # those of the program, for the profiler
    sizes: tuple[int, ...]  # typical values of dims and counted, then what records point to
    usual: Mapping[str, int]  # typical values of what the entry finds out, by symbol

    def entry(self, name: str = ENTRY, dims: Sequence[Symbol] = (), first_check: int = 0) -> Entry:
        """The entry point, under that name; `dims` are those that a caller says where this plan is
        for one size of them."""
        return emit_entry(self.program, self.placement, name, dims, first_check=first_check)

    def measured_entry(self, target: Target, name: str) -> bytes:
        """The object of an entry point for any memory: what values decide has its typical size, and
        nothing is checked."""
        made = emit_entry(self.program, self.placement, name, usual=self.usual)
        return compile_text(made.text, target)

    @property
    def dims(self) -> tuple[Symbol, ...]:
        """What the caller says."""
        return self.program.dims

    @property
    def capacities(self) -> tuple[Symbol, ...]:
        """The last of these."""
        return self.program.capacities

    @property
    def counted(self) -> tuple[Symbol, ...]:
        """What the entry says."""
        return self.program.counted

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
    program: DriverProgram,
    kernels: Mapping[str, Interface],
    target: Target,
    threads: int,
    beside: Plan | None = None,
) -> Plan:
    """Place the memory of `program`, with room for `threads` threads and for every core of the
    target. `kernels` are by task key; constants and sizes are placed beside those of the plan
    `beside`."""
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
        placing = _Placing(program, kernels, memory, ParamArena(), typicals)
    else:
        placing = _Placing(program, kernels, memory, beside.arena, beside.sizes)
    placement = placing.placement()
    return Plan(
        program=program,
        inputs=tuple(typical(value.type.nbytes) for value in program.inputs),
        outputs=tuple(typical(program.room(value)) for value in program.outputs),
        placement=placement,
        calls=tuple(placing.records),
        sizes=tuple(placing.sizes),
        usual={symbol.name: symbol.typical for symbol in program.symbols},
        arena=placing.arena,
        memory=memory,
        max_threads=most,
    )


def assemble(
    planned: Plan,
    objects: Sequence[bytes],
    target: Target,
    hot: Mapping[tuple[int, ...], Plan] | None = None,
) -> LinkedModel:
    """Link a model's kernels, and pack its parameters. `hot` are plans of the same model, each
    beside the one before, for single sizes of its dims; what is recorded of calls is the first
    one's."""
    hot = hot or {}
    plans = (planned, *hot.values())
    with ThreadPoolExecutor(1) as beside:
        packed = beside.submit(planned.arena.pack)
        library, checks = _library(planned, objects, target, hot)
        params = packed.result()
    shown = next(iter(hot.values()), planned)
    return LinkedModel(
        library=library,
        params=params,
        bytes_of=planned.arena.bytes_of,
        memories=tuple(one.memory for one in plans),
        dims=planned.dims,
        capacities=planned.capacities,
        counted=planned.counted,
        checks=checks,
        sizes=shown.sizes,
        max_threads=planned.max_threads,
        calls=shown.calls,
        entries=(ENTRY, GENERAL) if hot else (ENTRY,),
    )


def _library(
    planned: Plan, objects: Sequence[bytes], target: Target, hot: Mapping[tuple[int, ...], Plan]
) -> tuple[bytes, tuple[Check, ...]]:
    """The shared library of a model, with its entry points and what they need; and the checks that
    they make, by number."""
    general = planned.entry(GENERAL if hot else ENTRY)
    checks = general.checks
    entries, texts = [], []
    for number, (sizes, one) in enumerate(hot.items()):
        name = f"{ENTRY}.hot{number}"
        entries.append(HotEntry(sizes, name, one.memory))
        made = one.entry(name, planned.dims, len(checks))
        texts.append(made.text)
        checks += made.checks
    texts.append(general.text)
    if hot:
        sides = len(planned.inputs), len(planned.outputs)
        texts.append(emit_dispatch(*sides, entries, GENERAL))
    shown = next(iter(hot.values()), planned)
    # The kernels are seen from outside too, so that a profiler can call them one by one.
    exports = [ENTRY, *sorted(shown.symbols), *([GENERAL] if hot else [])]
    if planned.dims:
        texts.append(emit_workspace_bytes(planned.memory, planned.dims, entries))
        exports.append(WORKSPACE_BYTES)
    made_objects = [*objects, *(compile_text(text, target) for text in texts)]
    return library(made_objects, exports, target), checks


class _Placing:
    """Places what the steps of a program are about; constants are placed as they are met."""

    def __init__(
        self,
        program: DriverProgram,
        kernels: Mapping[str, Interface],
        memory: MemoryPlan,
        arena: ParamArena,
        sizes: Iterable[int],
    ) -> None:
        self.arena = arena
        self.records: list[CallRecord] = []
        self.sizes = [*sizes]
        self._program = program
        self._kernels = kernels
        self._memory = memory
        self._calls: dict[str, KernelCall] = {}
        self._places: dict[str, Place] = {}
        self._starts: dict[str, Place] = {}  # where each pointer points at first
        self._sizes_at: dict[tuple[int, ...], int] = {}  # where in `sizes` those of a call are

    def placement(self) -> Placement:
        """Where everything is; `records` and `sizes` are filled."""
        for step in steps_in(self._program.steps):
            match step:
                case Call():
                    self._calls[step.outputs[0].name] = self._call(step)
                    if step.count:
                        self._put(step.outputs[-1])
                case Bind():
                    self._put(step.value)
                case Fail():
                    pass
                case Branch():
                    self._put(step.condition)
                case Repeat():
                    self._repeat(step)
        return Placement(self._calls, self._places, self._memory.tops)

    def _call(self, call: Call) -> KernelCall:
        kernel = self._kernels[call.task]
        values = zip((*call.inputs, *call.outputs), kernel.params, strict=True)
        args: list[Argument] = [self._place(value, param.layout) for value, param in values]
        name = call.outputs[0].name
        step = self._memory.slice_steps.get(name)
        if call.dims or step is not None:
            args.append(Sizes(call.dims if step is None else (*call.dims, step)))
        for own in (scratch_of(name), slices_of(name)):
            if own in self._memory.places:
                args.append(self._memory.places[own])
        nbytes = [typical(param.nbytes) for param in kernel.params]
        nbytes += [0] * (len(args) - len(nbytes))
        arguments = tuple(map(self._argument, args, nbytes))
        self.records.append(CallRecord(kernel.name, call.task, call.origin, arguments, call.runs))
        return KernelCall(kernel.name, tuple(args))

    def _repeat(self, step: Repeat) -> None:
        for one in step.carried:
            even, odd = buffers_of(one.current.name)
            self._places |= {name: self._memory.places[name] for name in (even, odd)}
            self._starts[one.current.name] = self._put(one.initial)
            self._starts[one.next.name] = self._places[even]
        for part in (*step.read, *step.written):
            self._starts[part.slice.name] = self._put(part.whole)
        for value in (step.trips, step.condition, step.again, step.iteration):
            if isinstance(value, Value):
                self._put(value)

    def _put(self, value: Value) -> Place:
        """The place of a value that the driver itself reads or writes."""
        self._places[value.name] = self._place(value)
        return self._places[value.name]

    def _place(self, value: Value, layout: Layout | None = None) -> Place:
        """Where a value lies; a constant in the `layout` in which it is read."""
        place = self._memory.places[value.name]
        if place.segment is not Segment.PARAMS:
            return place
        constant = self._program.constants[place.index]
        is_whole = constant.value.type == value.type
        start = self.arena.add(constant, layout if is_whole else None)
        return dataclasses.replace(place, offset=place.offset + start)

    def _argument(self, argument: Argument, nbytes: int) -> CallArgument:
        """Where an argument lies at the typical sizes, in a loop's first iteration."""
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
