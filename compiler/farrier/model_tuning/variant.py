"""One way to compile a model: which algorithm computes each layer, and how each kernel runs."""

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
    """A model as kernels, its algorithms chosen by `settings`, and a schedule for every task."""

    settings: Settings
    graph: Graph
    program: DriverProgram
    choices: Mapping[str, ScheduledTask]  # by task key, or what stands for it in the program

    @property
    def calls(self) -> Sequence[Call]:
        """Every call of a kernel, in the order of the program's text."""
        return self.program.calls

    def with_schedules(self, decisions: Sequence[Mapping[str, int]]) -> Variant:
        """The same with a schedule for each of `calls`: each has a key of its own then."""
        names = [f"{call.task} {number}" for number, call in enumerate(self.calls)]
        choices = {
            name: dataclasses.replace(self.choices[call.task], decisions=one)
            for name, call, one in zip(names, self.calls, decisions, strict=True)
        }
        return dataclasses.replace(self, program=self.program.with_tasks(names), choices=choices)

    def is_same_code(self, other: Variant) -> bool:
        """Whether both run equal kernels with equal decisions."""
        return [call.task for call in self.calls] == [call.task for call in other.calls] and all(
            choice.decisions == other.choices[key].decisions for key, choice in self.choices.items()
        )

    def with_known(self, records: RecordStore) -> Variant:
        """The same with the fastest schedules that the records hold."""
        settings = self.settings
        choices = schedule_from_records(self.choices, records, settings.target, settings.threads)
        return dataclasses.replace(self, choices=choices)


def make_variant(prepared: Graph, settings: Settings, like: Variant | None = None) -> Variant:
    """What `prepare` made of a model, with algorithms by `settings` and default schedules; kernels
    of the variant `like`, for the same target and threads, are known."""
    graph = finish(prepared, settings)
    tasks, program = extract_tasks(graph, share_channels=settings.beside_hot)
    known = None if like is None else like.choices
    choices = default_schedules(
        tasks, program.calls, settings.target, settings.threads, ignore, known
    )
    return Variant(settings, graph, program, choices)
