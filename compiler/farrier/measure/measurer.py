"""The search's measurer: batches of a model's tasks on one runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from farrier.kernels import Helpers
from farrier.measure.batch import BatchBuilder
from farrier.measure.runner import Blobs, Runner, measure_by
from farrier.partition.extract import Task
from farrier.progress.clock import Clock
from farrier.schedule_search.trial import DeviceFaultError
from farrier.space import Decisions, Space
from farrier.targets import Target
from farrier_device.measurement import CandidateResult, TimingPolicy


class TaskMeasurer:
    """Measures candidates of `tasks`, by task key (`farrier.schedule_search.Measurer`)."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        target: Target,
        runner: Runner,
        blobs: Blobs,
        policy: TimingPolicy = TimingPolicy(),
        helpers: Helpers | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._tasks = tasks
        self._target = target
        self._runner = runner
        self._blobs = blobs
        self._policy = policy
        self._helpers = helpers
        self._clock = clock or Clock()
        self._builders: dict[str, BatchBuilder] = {}

    def measure(self, task: str, space: Space, batch: Sequence[Decisions]) -> list[CandidateResult]:
        """One result a candidate; a batch that the device could not run raises DeviceFaultError."""
        builder = self._builders.get(task)
        if builder is None:
            builder = BatchBuilder(
                self._tasks[task], self._target, self._blobs, self._policy, self._helpers
            )
            self._builders[task] = builder
        with self._clock.work("compile"):
            built = builder.build(space, batch)
        if built.request is None:
            return built.results([])
        measured = measure_by(self._clock, self._runner, built.request, self._blobs)
        if measured.fault is not None:
            raise DeviceFaultError(measured.fault, measured.message)
        return built.results(measured.results)
