"""Tunes a model's tasks: batches by expected gain, results into records, the best of each found."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from farrier.cost_model import CostModel
from farrier.errors import CompilerError
from farrier.progress import Listener, TrialsMeasured, Warned, ignore
from farrier.records import Context, RecordStore, TuningRecord, usable
from farrier.records.record import pairs
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.scheduler import TaskScheduler
from farrier.schedule_search.trial import DeviceFaultError, Measurer, Trial
from farrier.space import Decisions, Space
from farrier_device.measurement import CandidateResult

BATCH = 16
SMALLEST_BATCH = 4  # where there are more tasks than trials for whole batches
FAULTS = 3  # attempts at a batch that the device could not measure
FINALISTS = 7  # of each task, beside the default
NEAR = 0.1  # slower than the default by this may still win in a model


@dataclasses.dataclass(frozen=True, slots=True)
class TuningTask:
    """A task to tune: its structural hash, a readable name, its space, and how often it is
    called."""

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
    listener: Listener = ignore,
) -> dict[str, list[dict[str, int]]]:
    """The best decisions of every task, by task key: the default of the analytic model, then those
    that were measured to be faster or nearly as fast, the fastest first.

    Stops after `trials` measured candidates (those of earlier runs in `records` included), after
    `budget_s` seconds, or when no batch is worth its time. Kernels were measured alone, and once:
    before anything is claimed they are to be measured in their model. Raises whatever `records`
    raises.
    """
    run = _Run(tasks, fingerprint, measurer, records, seed, threads, listener)
    deadline = None if budget_s is None else time.monotonic() + budget_s
    run.resume()
    run.search(trials, deadline)
    return run.finalists()


class _Run:
    """The state of one call of `tune`."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        fingerprint: str,
        measurer: Measurer,
        records: RecordStore,
        seed: int,
        threads: int,
        listener: Listener,
    ) -> None:
        self._tasks = tasks
        self._fingerprint = fingerprint
        self._measurer = measurer
        self._records = records
        self._seed = seed
        self._threads = threads
        self._listener = listener
        self._model = CostModel(seed)
        self._searches = [EvolutionarySearch(t.key, t.space, self._model, seed) for t in tasks]
        self._defaults = [task.space.default() for task in tasks]
        predicted = [
            task.space.seconds(default) for task, default in zip(tasks, self._defaults, strict=True)
        ]
        bounds = [task.space.bound / threads for task in tasks]
        self._scheduler = TaskScheduler([task.weight for task in tasks], predicted, bounds)

    def resume(self) -> None:
        """Takes up what the records know of these tasks."""
        for index, (task, search) in enumerate(zip(self._tasks, self._searches, strict=True)):
            known = usable(
                self._records, task.key, self._fingerprint, self._threads, task.space.rule
            )
            search.update(
                Trial(r.knobs, CandidateResult(r.status, r.samples_ns))
                for r in known
                if r.context is Context.ALONE
            )
            for end in range(BATCH, len(search.trials) + BATCH, BATCH):
                self._scheduler.update(index, min(t.seconds for t in search.trials[:end]))
        self._model.fit()

    def search(self, trials: int | None, deadline: float | None) -> None:
        """Measures batch after batch until a limit is reached or nothing is left to gain."""
        share = BATCH if trials is None else trials // max(1, len(self._tasks))
        size = max(SMALLEST_BATCH, min(BATCH, share))
        while True:
            done = sum(len(search.trials) for search in self._searches)
            left = size if trials is None else min(size, trials - done)
            index = self._scheduler.next()
            if left <= 0 or index is None or (deadline and time.monotonic() >= deadline):
                return
            search = self._searches[index]
            batch = search.propose(left)
            if not batch:
                self._scheduler.exhaust(index)
                continue
            results = self._measure(index, batch)
            if results is None:
                self._scheduler.exhaust(index)
                continue
            found = [Trial(d, r) for d, r in zip(batch, results, strict=True)]
            search.update(found)
            for trial in found:
                self._records.add(self._record(self._tasks[index], trial))
            self._scheduler.update(index, _best_seconds(search))
            self._model.fit()
            self._report(index, found, done + len(found), trials, deadline)

    def finalists(self) -> dict[str, list[dict[str, int]]]:
        """Each task's default and its fastest others."""
        return {task.key: self._finalists(i) for i, task in enumerate(self._tasks)}

    def _finalists(self, index: int) -> list[dict[str, int]]:
        default = self._defaults[index]
        trials = sorted(self._searches[index].trials, key=lambda t: t.seconds)
        bar = next((t.seconds for t in trials if t.decisions == default), float("inf"))
        near = [t for t in trials if t.seconds < bar * (1 + NEAR)]
        rivals: list[dict[str, int]] = []
        for trial in near:  # several runs may have measured the same
            if trial.decisions not in (default, *rivals):
                rivals.append(trial.decisions)
        return [default, *rivals[:FINALISTS]]

    def _measure(self, index: int, batch: Sequence[Decisions]) -> list[CandidateResult] | None:
        """Results of a batch, or None where the device failed `FAULTS` times in a row."""
        task = self._tasks[index]
        for attempt in range(1, FAULTS + 1):
            try:
                return self._measurer.measure(task.key, task.space, batch)
            except DeviceFaultError as fault:
                if attempt == FAULTS:
                    self._listener(Warned(f"gave up measuring {task.name}: {fault}"))
        return None

    def _record(self, task: TuningTask, trial: Trial) -> TuningRecord:
        try:
            trace = task.space.trace(trial.decisions)
        except CompilerError:  # why is in the result
            trace = ""
        return TuningRecord(
            task=task.key,
            fingerprint=self._fingerprint,
            threads=self._threads,
            rule=task.space.rule.name,
            version=task.space.rule.version,
            decisions=pairs(trial.decisions),
            trace=trace,
            status=trial.result.status,
            samples_ns=trial.result.samples_ns,
            seed=self._seed,
            created=time.time(),
        )

    def _report(
        self,
        index: int,
        found: Sequence[Trial],
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
                failed=sum(trial.seconds == float("inf") for trial in found),
            )
        )


def _best_seconds(search: EvolutionarySearch) -> float:
    return float("inf") if search.best is None else search.best.seconds
