"""The measurer of a search: it builds batches of a model's tasks and runs them on one runner."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Mapping, Sequence

from farrier.compile_pool import CompilePool
from farrier.measure.batch import Batch, BatchBuilder
from farrier.measure.runner import Blobs, Runner, measure_by
from farrier.partition.task import Task
from farrier.progress.clock import Clock
from farrier.schedule_search.trial import DeviceFaultError
from farrier.space import Decisions, Space
from farrier.targets import Target
from farrier_device.measurement import Blame, CandidateResult, DeviceFault, TimingPolicy
from farrier_device.program import HOST

_RECENT = 0.25  # The weight of the newest batch in the time of a candidate.


class TaskMeasurer:
    """A measurer of candidates of `tasks`, by task key (`farrier.schedule_search.Measurer`).

    Batches are built one after another, each by all compilers of this process, so the first is
    ready soon; they are measured in parallel, as far as the runner has devices. If this machine
    measures, nothing is built during a measurement, nor computed by callers of `aside`, since that
    would disturb the times.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        target: Target,
        runner: Runner,
        blobs: Blobs,
        policy: TimingPolicy = TimingPolicy(),
        helpers: CompilePool | None = None,
        clock: Clock | None = None,
        spaces: Mapping[str, str] | None = None,
    ) -> None:
        """Create a measurer. `spaces` maps task keys to the memory spaces in which their kernels
        run; the default is the host."""
        self._tasks = tasks
        self._target = target
        self._runner = runner
        self._blobs = blobs
        self._policy = policy
        self._helpers = helpers
        self._spaces = spaces or {}
        self._clock = clock or Clock()
        self._building = threading.Lock()
        # Held during a measurement on this machine, and within `aside`.
        self._quiet = threading.Lock()
        self._builders: dict[str, BatchBuilder] = {}
        self._candidate_s = 0.0

    @property
    def devices(self) -> int | None:
        """The number of remote devices that measure now; None if this machine measures."""
        return self._runner.devices

    def aside(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which the caller may compute, and this machine measures nothing."""
        return self._quiet if self.devices is None else contextlib.nullcontext()

    @property
    def candidate_s(self) -> float:
        """Return the average seconds that a device took for a candidate of the last batches; 0.0
        before the first."""
        return self._candidate_s

    def measure(
        self,
        task: str,
        space: Space,
        batch: Sequence[Decisions],
        called_off: threading.Event | None = None,
    ) -> list[CandidateResult]:
        """Build and measure a batch of candidates, and return a result for each. Raises
        DeviceFaultError if the device could not run the batch."""
        with self._building:
            built = self._built(task, space, batch, called_off)
            if self.devices is None:  # The next batch is built when this one is measured.
                with self._quiet:
                    return self._measured(built, called_off)
        return self._measured(built, called_off)

    def _measured(self, built: Batch, called_off: threading.Event | None) -> list[CandidateResult]:
        if built.request is None:
            return built.results([])
        measured = measure_by(self._clock, self._runner, built.request, self._blobs, called_off)
        if measured.fault is not None:
            is_final = measured.blame is Blame.LIBRARY
            raise DeviceFaultError(measured.fault, measured.message, is_final=is_final)
        self._took(measured.run_s / len(built.request.candidates))
        device = "" if self.devices is None else measured.device
        return built.results(
            [dataclasses.replace(result, device=device) for result in measured.results]
        )

    def _built(
        self,
        task: str,
        space: Space,
        batch: Sequence[Decisions],
        called_off: threading.Event | None,
    ) -> Batch:
        with self._clock.work("compile"):
            if called_off is not None and called_off.is_set():
                raise DeviceFaultError(DeviceFault.LOST, "the batch was cancelled")
            builder = self._builders.get(task)
            if builder is None:
                builder = BatchBuilder(
                    self._tasks[task],
                    self._target,
                    self._blobs,
                    self._policy,
                    self._helpers,
                    self._spaces.get(task, HOST),
                )
                self._builders[task] = builder
            return builder.build(space, batch)

    def _took(self, seconds: float) -> None:
        before = self._candidate_s or seconds
        self._candidate_s = before + _RECENT * (seconds - before)
