"""The linker of a model for CPUs: it combines compiled kernels, packed parameters, planned memory
and an entry point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from farrier.artifact.code import CodeObject, ModelCode
from farrier.ir.dim import Symbol, typical
from farrier.partition.model_plan import ModelPlan
from farrier.partition.program import DriverProgram
from farrier.targets.cpu.codegen import compile_text, library
from farrier.targets.cpu.codegen.entry import (
    ENTRY,
    Entry,
    HotEntry,
    emit_dispatch,
    emit_entry,
    emit_workspace_bytes,
)
from farrier.targets.cpu.part import WORKSPACE_BYTES, CpuPart
from farrier.targets.cpu.target import CpuTarget, as_cpu
from farrier.targets.interface import Interface
from farrier.targets.linked import Check, LinkedModel
from farrier.targets.target import Target
from farrier_device.library_form import HOST_CODE

__all__ = ["ENTRY", "LinkedModel", "Plan", "assemble", "plan"]

_LIBRARY = "code/model.so"
GENERAL = f"{ENTRY}.any"  # The entry for all sizes, if hot sizes have specialized code.


@dataclasses.dataclass(frozen=True)
class Plan(ModelPlan):
    """The plan of a model whose driver is compiled to native code. The kernels were scheduled for
    `threads` threads."""

    threads: int = 1

    def entry(self, name: str = ENTRY, dims: Sequence[Symbol] = (), first_check: int = 0) -> Entry:
        """Return the entry point, under the symbol `name`. In a plan for fixed sizes, `dims` are
        the open (dynamic) dims of the general plan, whose sizes callers still pass. Checks are
        numbered from `first_check`."""
        return emit_entry(self.program, self.addresses, name, dims, first_check=first_check)

    def measured_entry(self, target: Target, name: str) -> bytes:
        """Return the object of an entry point for timing. It runs with whatever data is in memory,
        uses the typical values of data-dependent sizes, and makes no checks."""
        return compile_text(self.measured_text(name), as_cpu(target))

    def measured_text(self, name: str) -> str:
        """Return the LLVM text of the module that `measured_entry` compiles."""
        usual = {symbol.name: symbol.typical for symbol in self.program.symbols}
        return emit_entry(self.program, self.addresses, name, usual=usual).text


def plan(
    program: DriverProgram,
    kernels: Mapping[str, Interface],
    target: Target,
    threads: int,
    beside: Plan | None = None,
    kind: type[Plan] = Plan,
) -> Plan:
    """Plan the memory and the calls of a model. Memory that each thread needs separately is
    reserved for `threads` threads or for all cores of the target, whichever is more. `kind` is the
    class of the result. If an earlier plan `beside` is passed, the new plan uses its packed
    constants and its order of size arguments."""
    whole = kind.of(program, kernels, max(threads, target.threads), beside)
    return dataclasses.replace(whole, threads=threads)


def assemble(
    planned: Plan,
    objects: Sequence[bytes],
    target: CpuTarget,
    hot: Mapping[tuple[int, ...], Plan] | None = None,
) -> LinkedModel:
    """Link a model's kernels, and pack its parameters. `hot` maps tuples of sizes to plans of the
    same model that are specialized for exactly these sizes; all of these use the parameters of
    `planned`. `calls` in the result are those of the first specialized plan, or of `planned` if
    there is none."""
    hot = hot or {}
    plans = (planned, *hot.values())
    with ThreadPoolExecutor(1) as beside:
        packed = beside.submit(planned.arena.pack)
        library, checks = _library(planned, objects, target, hot)
        params = packed.result()
    shown = next(iter(hot.values()), planned)
    memories = tuple(each_plan.memory for each_plan in plans)
    most = planned.memory.most_bytes
    part = CpuPart(
        triple=target.triple,
        threads=planned.threads,
        max_threads=planned.max_threads,
        entry=ENTRY,
        workspace_bytes=max(typical(memory.workspace_bytes) for memory in memories),
        workspace=most if isinstance(most, int) else str(most),
    )
    entries = (ENTRY, WORKSPACE_BYTES) if planned.dims else (ENTRY,)
    return LinkedModel(
        code=ModelCode((CodeObject(_LIBRARY, HOST_CODE, entries, library),), part.to_json()),
        params=params,
        bytes_of=planned.arena.bytes_of,
        memories=memories,
        dims=planned.dims,
        capacities=planned.capacities,
        counted=planned.counted,
        checks=checks,
        sizes=shown.sizes,
        calls=shown.calls,
        entries=(ENTRY, GENERAL) if hot else (ENTRY,),
    )


def _library(
    planned: Plan, objects: Sequence[bytes], target: CpuTarget, hot: Mapping[tuple[int, ...], Plan]
) -> tuple[bytes, tuple[Check, ...]]:
    """Return the shared library of a model, which contains its kernels, its entry points and the
    support functions. Also return the checks that the entry points make, in the order of their
    numbers."""
    general = planned.entry(GENERAL if hot else ENTRY)
    checks = general.checks
    entries, texts = [], []
    for number, (sizes, hot_plan) in enumerate(hot.items()):
        name = f"{ENTRY}.hot{number}"
        entries.append(HotEntry(sizes, name, hot_plan.memory))
        entry = hot_plan.entry(name, planned.dims, len(checks))
        texts.append(entry.text)
        checks += entry.checks
    texts.append(general.text)
    if hot:
        sides = len(planned.inputs), len(planned.outputs)
        texts.append(emit_dispatch(*sides, entries, GENERAL))
    shown = next(iter(hot.values()), planned)
    # The kernels are exported as well, so that a profiler can call them individually.
    exports = [ENTRY, *sorted(shown.symbols), *([GENERAL] if hot else [])]
    if planned.dims:
        texts.append(emit_workspace_bytes(planned.memory, planned.dims, entries))
        exports.append(WORKSPACE_BYTES)
    made_objects = [*objects, *(compile_text(text, target) for text in texts)]
    return library(made_objects, exports, target), checks
