"""Join compiled kernels into one model: packed parameters, planned memory, one entry point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from farrier.artifact.calls import CallRecord
from farrier.artifact.params import ParamArena
from farrier.ir.dim import Symbol, typical
from farrier.partition.addresses import Addresses, Addressing, plan_spaces
from farrier.partition.plan_memory import MemoryPlan
from farrier.partition.program import DriverProgram
from farrier.targets import Target
from farrier.targets.cpu.codegen import compile_text, library
from farrier.targets.cpu.codegen.entry import (
    ENTRY,
    WORKSPACE_BYTES,
    Entry,
    HotEntry,
    emit_dispatch,
    emit_entry,
    emit_workspace_bytes,
)
from farrier.targets.interface import Interface
from farrier.targets.linked import Check, LinkedModel
from farrier_device.program import HOST

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
    addresses: Addresses
    max_threads: int
    calls: tuple[CallRecord, ...]  # those of the program, for the profiler
    sizes: tuple[int, ...]  # typical values of dims and counted, then what records point to
    usual: Mapping[str, int]  # typical values of what the entry finds out, by symbol

    def entry(self, name: str = ENTRY, dims: Sequence[Symbol] = (), first_check: int = 0) -> Entry:
        """The entry point, under that name; `dims` are those that a caller says where this plan is
        for one size of them."""
        return emit_entry(self.program, self.addresses, name, dims, first_check=first_check)

    def measured_entry(self, target: Target, name: str) -> bytes:
        """The object of an entry point for any memory: what values decide has its typical size, and
        nothing is checked."""
        made = emit_entry(self.program, self.addresses, name, usual=self.usual)
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
    memories = plan_spaces(program, kernels, most)
    if beside is None:
        typicals = [symbol.typical for symbol in (*program.dims, *program.counted)]
        # The size that fails a check: of this program, or of one for sizes of its dims.
        typicals += [0] if program.has_checks or program.dims else []
        addressing = Addressing(program, kernels, memories, ParamArena(), typicals)
    else:
        addressing = Addressing(program, kernels, memories, beside.arena, beside.sizes)
    addresses = addressing.addresses()
    return Plan(
        program=program,
        inputs=tuple(typical(value.type.nbytes) for value in program.inputs),
        outputs=tuple(typical(program.room(value)) for value in program.outputs),
        addresses=addresses,
        calls=tuple(addressing.records),
        sizes=tuple(addressing.sizes),
        usual={symbol.name: symbol.typical for symbol in program.symbols},
        arena=addressing.arena,
        memory=memories[HOST],
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
