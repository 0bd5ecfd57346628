"""The plan of a model for a device and its host, and the model's code: kernels of both, and the
driver program."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farrier.artifact.code import CodeObject, ModelCode
from farrier.ir.dim import Atom, Extent, substitute
from farrier.partition.capacity import check_launches, check_memories
from farrier.partition.model_plan import ModelPlan
from farrier.partition.placement import Placement, place
from farrier.partition.program import Call, DriverProgram, Shape, steps_in
from farrier.partition.program import Launch as InQueue
from farrier.targets.driven.objects import joined, written
from farrier.targets.driven.part import DrivenPart, HostPart
from farrier.targets.driven.target import DrivenTarget
from farrier.targets.interface import Interface
from farrier.targets.linked import LinkedModel
from farrier.targets.target import Target
from farrier_device.device_library import DeviceLibrary, call_of
from farrier_device.library_form import HOST_CODE
from farrier_device.measurement import Launch
from farrier_device.program import HOST

ENTRY = "run"
HOST_PATH = "code/host.so"


@dataclasses.dataclass(frozen=True)
class Plan(ModelPlan):
    """The plan of a model whose driver is an interpreted program. The host's kernels are scheduled
    for `threads` threads."""

    threads: int = 1

    def measured_entry(self, target: Any, name: str) -> bytes:
        return written({}, {name: self.executable()[0]})

    def parts(self, name: str) -> tuple[tuple[Launch, ...], ...]:
        steps = (step for step in steps_in(self.program.steps) if isinstance(step, Call | InQueue))
        counts = [len(step.shapes) if isinstance(step, InQueue) else 1 for step in steps]
        ends = itertools.accumulate(counts)
        return tuple(
            tuple(Launch(call_of(name, number)) for number in range(end - count, end))
            for count, end in zip(counts, ends, strict=True)
        )

    @property
    def host_symbols(self) -> list[str]:
        """The symbols of the kernels that run on the host, sorted."""
        calls = self.program.calls
        on_host = (call for call in calls if self.program.space(call.outputs[0]) == HOST)
        return sorted({self.addresses.calls[call.outputs[0].name].function for call in on_host})


def plan(
    program: DriverProgram,
    kernels: Mapping[str, Interface],
    target: Target,
    threads: int,
    beside: Any,
) -> Plan:
    """Plan the memory of a model in each memory space. Each kernel runs in the memory space of its
    interface. If an earlier plan `beside` is passed, the new plan uses its packed constants and its
    order of size arguments."""

    def placement_of(call: Call) -> Placement:
        kernel = kernels[call.task]
        if not kernel.entries:
            return Placement(kernel.space)
        dims: dict[Atom, Extent] = dict(zip(kernel.dims, call.dims, strict=True))
        shapes = (
            Shape(entry.suffix, (substitute(entry.blocks, dims),), (entry.threads,))
            for entry in kernel.entries
        )
        return Placement(kernel.space, tuple(shapes))

    alignments = {space.name: space.alignment for space in target.spaces}
    placed = place(program, placement_of, alignments)
    check_launches(placed, target.axes)
    whole = Plan.of(placed, kernels, max(threads, target.threads), beside, alignments)
    check_memories(whole, target.spaces)
    return dataclasses.replace(whole, threads=threads)


def assemble(
    planned: Plan,
    objects: Sequence[bytes],
    target: DrivenTarget,
    library_kind: str,
    files: Callable[[Mapping[str, str]], Sequence[CodeObject]],
) -> LinkedModel:
    """Return the code of a model: the host's library, the device's kernels, and the driver program.
    `files` is a function that returns the code objects for the device's kernels, given their texts
    by name. Hot sizes run the same code as all other sizes."""
    program, checks = planned.executable()
    symbols = planned.host_symbols
    content = joined([*objects, written({}, {ENTRY: program})], target.host, symbols)
    library = DeviceLibrary(content)
    most = planned.memory.most_bytes
    code = [*files(library.modules)]
    host = None
    if library.host:
        assert target.host is not None
        code.append(CodeObject(HOST_PATH, HOST_CODE, tuple(symbols), library.host))
        host = HostPart(target.host.arch, target.host.cpu, target.host.features)
    part = DrivenPart(
        workspace=most if isinstance(most, int) else str(most),
        threads=planned.threads,
        max_threads=planned.max_threads,
        host=host,
    )
    return LinkedModel(
        code=ModelCode(tuple(code), part.to_json(), program),
        library=CodeObject("code/library.json", library_kind, (ENTRY,), content),
        params=planned.arena.pack(),
        bytes_of=planned.arena.bytes_of,
        memories=(planned.memory,),
        dims=planned.dims,
        capacities=planned.capacities,
        counted=planned.counted,
        checks=checks,
        sizes=planned.sizes,
        calls=planned.calls,
        entries=(ENTRY,),
        driver=planned.program,
    )
