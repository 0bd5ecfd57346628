"""A variant of a model: the algorithm of each convolution, and the schedule of each kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from farrier.compile_pool.choose import ScheduledTask, default_schedules, schedule_from_records
from farrier.ir.graph import Graph
from farrier.partition import Call, DriverProgram, extract_tasks
from farrier.passes import Settings, finish
from farrier.progress import ignore
from farrier.records import RecordStore


@dataclasses.dataclass(frozen=True)
class Variant:
    """A model partitioned into kernels, with the convolution algorithms that `settings` choose, and
    a schedule for every task."""

    settings: Settings
    graph: Graph
    program: DriverProgram
    # By task key, or the name that replaces it in the program.
    choices: Mapping[str, ScheduledTask]

    @property
    def calls(self) -> Sequence[Call]:
        """Every call of a kernel, in textual order of the program."""
        return self.program.calls

    def with_schedules(self, decisions: Sequence[Mapping[str, int]]) -> Variant:
        """Return the variant with the decisions `decisions[i]` for call i; each call gets a key of
        its own."""
        names = [f"{call.task} {number}" for number, call in enumerate(self.calls)]
        choices = {
            name: dataclasses.replace(self.choices[call.task], decisions=call_decisions)
            for name, call, call_decisions in zip(names, self.calls, decisions, strict=True)
        }
        return dataclasses.replace(self, program=self.program.with_tasks(names), choices=choices)

    def is_same_code(self, other: Variant) -> bool:
        """Check whether both variants run equal kernels with equal decisions."""
        return [call.task for call in self.calls] == [call.task for call in other.calls] and all(
            choice.decisions == other.choices[key].decisions for key, choice in self.choices.items()
        )

    def with_known(self, records: RecordStore) -> Variant:
        """Return the variant in which each kernel has the fastest schedule in the records."""
        settings = self.settings
        choices = schedule_from_records(self.choices, records, settings.target, settings.threads)
        return dataclasses.replace(self, choices=choices)


def make_variant(prepared: Graph, settings: Settings, like: Variant | None = None) -> Variant:
    """Return the variant of a prepared graph with the algorithms that `settings` choose and default
    schedules. Kernels of the variant `like`, for the same target and threads, are reused."""
    graph = finish(prepared, settings)
    tasks, program = extract_tasks(graph, share_channels=settings.beside_hot)
    choices_of_like = None if like is None else like.choices
    choices = default_schedules(
        tasks, program.calls, settings.target, settings.threads, ignore, choices_of_like
    )
    return Variant(settings, graph, program, choices)
