"""Tune a model's tasks: measure batches in order of expected gain, record the results, and return
the best schedules.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

from farrier.cost_model import CostModel
from farrier.errors import CompilerError
from farrier.progress import Listener, TrialsMeasured, Warned, ignore
from farrier.records import Context, RecordStore, TuningRecord, usable
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.in_flight import Finished, InFlight
from farrier.schedule_search.scheduler import TaskScheduler
from farrier.schedule_search.trial import Measurer, Trial
from farrier.space import Space
from farrier_device.measurement import CandidateResult, fast_quartile_mean

BATCH = 16
# The batches in flight for each device: the batch that it measures, and the next one.
A_DEVICE = 2
MOST = 48  # The most batches in flight, of all devices.
SMALLEST_BATCH = 4  # The size if there are more tasks than trials for whole batches.
BATCH_S = 4.0  # The seconds for a batch of a device that takes long for a candidate.
GRACE_S = 1.0  # The seconds for batches in flight after a budget is spent.
FINALISTS = 7  # The number of finalists of each task, in addition to the default.
NEWS = 1 / 8  # The share of new results from which on the model is trained again.
NEAR = 0.1  # A candidate slower than the default by up to this share may still win in a model.


@dataclasses.dataclass(frozen=True, slots=True)
class TuningTask:
    """A task to tune: its key, a readable name, its space, and the number of its calls in the
    model."""

    key: str
    name: str
    space: Space
    weight: int = 1


def tune(
    tasks: Sequence[TuningTask],
    fingerprint: str,
    measurer: Measurer,
    records: RecordStore,
    *,
    trials: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    threads: int = 1,
    base: CostModel | None = None,
    listener: Listener = ignore,
    ended: Callable[[str], object] = lambda reason: None,
) -> dict[str, list[dict[str, int]]]:
    """Return the best decisions of every task, by task key.

    The list of a task starts with the default of the analytic model, followed by candidates that
    were measured to be faster or nearly as fast, the fastest first.

    The search stops after `trials` measured candidates (those of earlier runs in `records`
    included), after `budget_s` seconds, or when no batch is worth its time. Kernels are measured
    alone, so the model must be measured with them before a gain is claimed. `base` is a trained
    cost model. `ended` is called with the reason for the end. Raises the errors of `records`.
    """
    model = CostModel(seed, base=base)
    run = _Run(tasks, fingerprint, measurer, records, seed, threads, model, listener)
    deadline = None if budget_s is None else time.monotonic() + budget_s
    run.resume()
    ended(run.search(trials, deadline))
    return run.finalists()


class _Run:
    """The state of one run of `tune`: its searches, records and limits."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        fingerprint: str,
        measurer: Measurer,
        records: RecordStore,
        seed: int,
        threads: int,
        model: CostModel,
        listener: Listener,
    ) -> None:
        self._tasks = tasks
        self._fingerprint = fingerprint
        self._measurer = measurer
        self._records = records
        self._seed = seed
        self._threads = threads
        self._listener = listener
        self._model = model
        self._usual = BATCH  # The candidates of a batch that nothing keeps smaller.
        self._learned = 0  # The number of results that the model has learned.
        self._given_up: set[int] = set()  # The tasks that the devices could not measure.
        self._searches = [EvolutionarySearch(t.key, t.space, self._model, seed) for t in tasks]
        # The relative errors of measurements.
        self._errors: list[list[float]] = [[] for _ in tasks]
        self._defaults = [task.space.default() for task in tasks]
        predicted = [
            task.space.seconds(default) for task, default in zip(tasks, self._defaults, strict=True)
        ]
        bounds = [task.space.bound / threads for task in tasks]
        self._scheduler = TaskScheduler([task.weight for task in tasks], predicted, bounds)

    def resume(self) -> None:
        """Load the results of these tasks from the records."""
        for index, (task, search) in enumerate(zip(self._tasks, self._searches, strict=True)):
            usable_records = usable(
                self._records, task.key, self._fingerprint, self._threads, *task.space.rules
            )
            search.update(
                Trial(r.knobs, CandidateResult(r.status, r.samples_ns))
                for r in usable_records
                if r.context is Context.ALONE
            )
            self._noise(index, search.trials)
            for end in range(BATCH, len(search.trials) + BATCH, BATCH):
                self._scheduler.update(index, min(t.seconds for t in search.trials[:end]))

    def search(self, trials: int | None, deadline: float | None) -> str:
        """Measure batches until a limit is reached or no gain is expected; return the reason as
        text. Several batches are in flight; results that arrive influence the next proposals."""
        share = BATCH if trials is None else trials // max(1, len(self._tasks))
        self._usual = max(SMALLEST_BATCH, min(BATCH, share))
        with InFlight(self._measurer) as flight:
            while True:
                while flight.batches < self._room:
                    if not self._begin(flight, trials, deadline):
                        break
                if not flight.batches:
                    return self._why(trials, deadline)
                left = None if deadline is None else deadline + GRACE_S - time.monotonic()
                finished = flight.next(None if left is None else max(0.0, left))
                if finished is None:
                    return self._why(trials, deadline)
                self._take(finished, trials, deadline)

    @property
    def _room(self) -> int:
        """The number of batches to have in flight at once."""
        return min((self._measurer.devices or 1) * A_DEVICE, MOST)

    def _why(self, trials: int | None, deadline: float | None) -> str:
        """Return the reason for the end of the search as text."""
        if trials is not None and self._done >= trials:
            return f"{self._done} trials are measured"
        if deadline is not None and time.monotonic() >= deadline - self._measurer.candidate_s:
            return "its time is up"
        return self._scheduler.why_none()

    def _begin(self, flight: InFlight, trials: int | None, deadline: float | None) -> bool:
        """Start a batch if one is worth its time; return whether one was started."""
        while (index := self._scheduler.next()) is not None:
            size = self._size(flight, trials, deadline)
            if size <= 0:
                return False
            search, task = self._searches[index], self._tasks[index]
            with self._measurer.aside():
                if self._done - self._learned > NEWS * self._learned:
                    self._model.fit()
                    self._learned = self._done
                batch = search.propose(size)
            if batch:
                self._scheduler.begin(index, len(batch) / self._usual)
                flight.begin(index, task.key, task.space, batch)
                return True
            self._scheduler.exhaust(index)
        return False

    def _size(self, flight: InFlight, trials: int | None, deadline: float | None) -> int:
        """Return the number of candidates in the next batch. It is smaller for a slow remote
        device. If several devices are idle, they share the candidates, so that results arrive
        sooner. At the end of the search, batches for several devices become so small that no device
        waits long for the others."""
        size = self._usual
        devices, candidate_s = self._measurer.devices, self._measurer.candidate_s
        if devices is not None:
            usual = round(BATCH_S / candidate_s) if candidate_s else SMALLEST_BATCH
            size = min(size, max(1, usual))
            if devices > flight.batches:
                size = -(-size // (devices - flight.batches))
        if trials is not None:
            left = trials - self._done - flight.candidates
            size = min(size, left if self._room <= A_DEVICE else -(-left // self._room))
        if deadline is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return 0
            if candidate_s:  # A device may have another batch before this one.
                size = min(size, int(left_s / candidate_s / A_DEVICE))
        return size

    def _take(self, finished: Finished, trials: int | None, deadline: float | None) -> None:
        """Record the results of a finished batch, and let the search and the task scheduler learn
        from them."""
        index, part = finished.task, len(finished.candidates) / self._usual
        self._scheduler.end(index, part)
        if finished.fault is not None:
            if index not in self._given_up:  # Others of its batches may be in flight.
                name = self._tasks[index].name
                self._listener(Warned(f"gave up measuring {name}: {finished.fault}"))
            self._given_up.add(index)
            self._scheduler.exhaust(index)
            return
        pairs_of = zip(finished.candidates, finished.results, strict=True)
        batch_trials = [Trial(dict(decisions), result) for decisions, result in pairs_of]
        search = self._searches[index]
        search.update(batch_trials)
        for trial in batch_trials:
            self._records.add(self._record(self._tasks[index], trial))
        self._scheduler.update(index, _best_seconds(search), part, self._noise(index, batch_trials))
        self._report(index, batch_trials, self._done, trials, deadline)

    def _noise(self, index: int, batch_trials: Sequence[Trial]) -> float:
        """Return the typical relative error of a task's measurements, including those of the new
        trials."""
        errors = self._errors[index]
        errors += [error for trial in batch_trials if (error := _error(trial)) is not None]
        return statistics.median(errors) if errors else 0.0

    @property
    def _done(self) -> int:
        """The number of trials of all tasks, including those of earlier runs."""
        return sum(len(search.trials) for search in self._searches)

    def finalists(self) -> dict[str, list[dict[str, int]]]:
        """Return, by task key, the default and the fastest other candidates."""
        return {task.key: self._finalists(i) for i, task in enumerate(self._tasks)}

    def _finalists(self, index: int) -> list[dict[str, int]]:
        default = self._defaults[index]
        trials = sorted(self._searches[index].trials, key=lambda t: t.seconds)
        bar = next((t.seconds for t in trials if t.decisions == default), float("inf"))
        near = [t for t in trials if t.seconds < bar * (1 + NEAR)]
        rivals: list[dict[str, int]] = []
        for trial in near:  # Several runs may have measured the same candidate.
            if trial.decisions not in (default, *rivals):
                rivals.append(trial.decisions)
        return [default, *rivals[:FINALISTS]]

    def _record(self, task: TuningTask, trial: Trial) -> TuningRecord:
        try:
            trace = task.space.trace(trial.decisions)
        except CompilerError:  # The result of the candidate contains the reason.
            trace = ""
        return TuningRecord.of(
            task.space.rule_of(trial.decisions),
            trial.decisions,
            trial.result,
            task=task.key,
            fingerprint=self._fingerprint,
            threads=self._threads,
            trace=trace,
            seed=self._seed,
        )

    def _report(
        self,
        index: int,
        batch_trials: Sequence[Trial],
        done: int,
        planned: int | None,
        deadline: float | None,
    ) -> None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        self._listener(
            TrialsMeasured(
                trials=done,
                planned=planned,
                best_ms=self._scheduler.latency * 1e3,
                seconds_left=left,
                task=self._tasks[index].name,
                failed=sum(trial.seconds == float("inf") for trial in batch_trials),
            )
        )


def _best_seconds(search: EvolutionarySearch) -> float:
    return float("inf") if search.best is None else search.best.seconds


def _error(trial: Trial) -> float | None:
    """Return the relative error of a candidate's measurement, estimated as half of the difference
    between the two halves of its samples. None for fewer than two samples."""
    samples = trial.result.samples_ns
    if len(samples) < 2:
        return None
    first, second = fast_quartile_mean(samples[::2]), fast_quartile_mean(samples[1::2])
    return abs(first - second) / (first + second)
