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
from farrier.ir.graph import Constant, Graph
from farrier.ir.loop import Function
from farrier.partition import Call
from farrier.passes import MemoryPlan, plan_memory
from farrier.passes.plan_memory import Place
from farrier.passes.plan_memory import Segment as Where
from farrier.target import Target

__all__ = ["ENTRY", "LinkedModel", "assemble"]


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


def assemble(
    graph: Graph,
    calls: Sequence[Call],
    functions: Mapping[str, Function],
    objects: Sequence[bytes],
    target: Target,
    threads: int,
) -> LinkedModel:
    """Links the kernels of `graph`, with room for `threads` threads and for every core of the
    target. `functions` are by task key."""
    most = max(threads, target.cores)
    scratch = {}
    for call in calls:
        needed = workspace_bytes(functions[call.task], most)
        if needed:
            scratch[call.outputs[0].name] = needed
    plan = plan_memory(graph, scratch)
    arena = ParamArena()
    constants = {constant.value.name: constant for constant in graph.constants}
    made = [_kernel_call(c, functions[c.task], plan, arena, constants) for c in calls]
    entry = compile_text(emit_entry(made, len(graph.inputs), len(graph.outputs)), target)
    # The kernels are seen from outside too, so that a profiler can call them one by one.
    exports = (ENTRY, *SYMBOLS, *sorted({call.function for call in made}))
    library = link([entry, *objects, support_object(target)], exports)
    table = tuple(
        _record(call, kernel, functions[call.task], len(graph.inputs), len(graph.outputs))
        for call, kernel in zip(calls, made, strict=True)
    )
    return LinkedModel(
        library, arena.pack(), arena.bytes_of, plan.workspace_bytes, most, plan, table
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
    sizes = [param.nbytes for param in function.params]
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
