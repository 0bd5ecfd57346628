"""Memory is placed as for a CPU; the entry is the table of calls."""

from __future__ import annotations

from abacus.program import joined, written
from farrier.errors import UsageError
from farrier.partition.program import Call
from farrier.targets.cpu import assemble as cpu
from farrier.targets.linked import LinkedModel

ENTRY = "count"


class Plan(cpu.Plan):
    """A plan whose entries are tables."""

    def measured_entry(self, target, name):
        calls = [
            [call.function, [[one.position, one.offset] for one in call.arguments]]
            for call in self.calls
        ]
        return written((), {name: calls})


def plan(program, kernels, target, threads):
    if program.dims or not all(isinstance(step, Call) for step in program.steps):
        raise UsageError(
            "an abacus takes models of fixed shapes, without If and Loop",
            hint="--shape fixes the shapes",
        )
    return Plan(**vars(cpu.plan(program, kernels, target, threads)))


def assemble(planned, objects):
    return LinkedModel(
        library=joined([*objects, planned.measured_entry(None, ENTRY)]),
        params=planned.arena.pack(),
        bytes_of=planned.arena.bytes_of,
        memories=(planned.memory,),
        dims=(),
        capacities=(),
        counted=(),
        checks=(),
        sizes=planned.sizes,
        max_threads=planned.max_threads,
        calls=planned.calls,
        entries=(ENTRY,),
    )
