"""Joins compiled kernels into one model: packed parameters, planned memory, one entry point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact.calls import CallArgument, CallRecord
from farrier.artifact.params import ParamArena
from farrier.codegen import compile_text, emit_entry, link, support_object, workspace_bytes
from farrier.codegen.entry import (
    ENTRY,
    Input,
    KernelCall,
    Output,
    Params,
    Segment,
    Workspace,
    position_of,
)
from farrier.codegen.support import SYMBOLS
from farrier.ir.dim import number
from farrier.ir.graph import Constant, Graph
from farrier.ir.loop import Function
from farrier.partition import Call
from farrier.passes import MemoryPlan, plan_memory
from farrier.passes.plan_memory import Place
from farrier.passes.plan_memory import Segment as Where
from farrier.target import Target

__all__ = ["ENTRY", "LinkedModel", "Plan", "assemble", "plan"]


@dataclasses.dataclass(frozen=True, slots=True)
class LinkedModel:
    """One model as native code. `params` is uint8 [params_bytes], 64-byte aligned pieces, and
    `bytes_of` says how many of them are each constant's, by its digest."""

    library: bytes
    params: npt.NDArray[np.uint8]
    bytes_of: Mapping[str, int]
    workspace_bytes: int
    max_threads: int  # each thread has scratch memory of its own
    memory: MemoryPlan
    calls: tuple[CallRecord, ...]  # in the order of execution


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where everything of a model lies, before its code is linked."""

    inputs: tuple[int, ...]  # bytes of each
    outputs: tuple[int, ...]
    arena: ParamArena
    memory: MemoryPlan
    max_threads: int
    kernels: tuple[KernelCall, ...]
    calls: tuple[CallRecord, ...]  # the same, for the profiler

    def entry(self, target: Target, name: str = ENTRY) -> bytes:
        """The object of the entry point, under that name."""
        text = emit_entry(self.kernels, len(self.inputs), len(self.outputs), name)
        return compile_text(text, target)

    @property
    def symbols(self) -> set[str]:
        """The kernels that it calls."""
        return {kernel.function for kernel in self.kernels}


def plan(
    graph: Graph,
    calls: Sequence[Call],
    functions: Mapping[str, Function],
    target: Target,
    threads: int,
) -> Plan:
    """Places the memory of `graph`, with room for `threads` threads and for every core of the
    target. `functions` are by task key."""
    most = max(threads, target.cores)
    scratch = {}
    for call in calls:
        needed = workspace_bytes(functions[call.task], most)
        if needed:
            scratch[call.outputs[0].name] = number(needed)
    memory = plan_memory(graph, scratch)
    arena = ParamArena()
    constants = {constant.value.name: constant for constant in graph.constants}
    made = [_kernel_call(c, functions[c.task], memory, arena, constants) for c in calls]
    table = tuple(
        _record(call, kernel, functions[call.task], len(graph.inputs), len(graph.outputs))
        for call, kernel in zip(calls, made, strict=True)
    )
    return Plan(
        inputs=tuple(number(value.type.nbytes) for value in graph.inputs),
        outputs=tuple(number(value.type.nbytes) for value in graph.outputs),
        arena=arena,
        memory=memory,
        max_threads=most,
        kernels=tuple(made),
        calls=table,
    )


def assemble(planned: Plan, objects: Sequence[bytes], target: Target) -> LinkedModel:
    """Links a model's kernels, and packs its parameters."""
    # The kernels are seen from outside too, so that a profiler can call them one by one.
    exports = (ENTRY, *SYMBOLS, *sorted(planned.symbols))
    library = link([planned.entry(target), *objects, support_object(target)], exports)
    return LinkedModel(
        library=library,
        params=planned.arena.pack(),
        bytes_of=planned.arena.bytes_of,
        workspace_bytes=planned.memory.workspace_bytes,
        max_threads=planned.max_threads,
        memory=planned.memory,
        calls=planned.calls,
    )


def _kernel_call(
    call: Call,
    function: Function,
    plan: MemoryPlan,
    arena: ParamArena,
    constants: Mapping[str, Constant],
) -> KernelCall:
    """The call with the place of every argument; constants are placed as they are met."""
    args: list[tuple[Segment, int]] = []
    for value, param in zip((*call.inputs, *call.outputs), function.params, strict=True):
        if value.name in constants:
            args.append((Params(), arena.add(constants[value.name], param.layout)))
        else:
            args.append(_segment(plan.places[value.name]))
    own = plan.scratch.get(call.outputs[0].name)
    if own is not None:
        args.append((Workspace(), own))
    return KernelCall(function.name, tuple(args))


def _record(
    call: Call, kernel: KernelCall, function: Function, inputs: int, outputs: int
) -> CallRecord:
    sizes = [number(param.nbytes) for param in function.params]
    sizes += [0] * (len(kernel.args) - len(sizes))  # the kernel's own scratch memory
    arguments = tuple(
        CallArgument(position_of(segment, inputs, outputs), offset, nbytes)
        for (segment, offset), nbytes in zip(kernel.args, sizes, strict=True)
    )
    return CallRecord(kernel.function, call.task, call.origin, arguments)


def _segment(place: Place) -> tuple[Segment, int]:
    segments: dict[Where, Any] = {Where.INPUT: Input, Where.OUTPUT: Output}
    if place.segment in segments:
        return segments[place.segment](place.index), place.offset
    return Workspace(), place.offset
