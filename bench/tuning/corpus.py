"""The corpus: the measured times of all candidates, by task.

Each class of machines has a folder, and each task a file of tuning records in it, to which new
measurements are added. The batches of a task are in turn random candidates, the analytic model's
first candidates, and proposals of the tuner's search. Then all candidates are measured a second
time. Candidates that may be the best, and all candidates of held-out tasks, on which rankings are
judged, are measured a third time. The repetitions are minutes apart, after other tasks.
Disturbances of a machine only add time, for a while, so the minimum of the newest three times
counts. The candidates that are then the fastest are measured three more times, because the best of
them was partly lucky, and its new times are not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.tuning.tasks import Layer
from farrier.compile_pool import CompilePool
from farrier.compile_pool.choose import ScheduledTask
from farrier.compile_pool.helpers import helpers_for
from farrier.cost_model import CostModel
from farrier.measure import TaskMeasurer
from farrier.measure.local import LocalDevice
from farrier.records import FileRecords, TuningRecord, usable
from farrier.records.record import Pairs, pairs
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.trial import DeviceFaultError, Trial
from farrier.space import Features, Population, Space
from farrier.space.space import Floats
from farrier.targets import Target
from farrier.targets.cpu.target import as_cpu
from farrier_device.measurement import CandidateResult, DeviceFault, TimingPolicy

BATCH = 16
TIMES = 3  # The measurements of candidates whose time matters.
NEAR = 1.25  # Times the best known: a candidate within it may be the best.
FASTEST = 16  # The fastest candidates of each task, which are measured `TIMES` times more.
_AGAIN = 1 / 3  # The share of the time for measuring again.
_SAMPLES, _SAMPLED_S = 10, 0.02  # The least calls and seconds of each candidate.
_RANDOM, _RANKED, _SEARCHED = range(3)
# The sources of a task's batches, in turn.
_TURNS = (_RANDOM, _RANKED, _SEARCHED, _RANDOM, _SEARCHED)


@dataclasses.dataclass(frozen=True)
class Known:
    """A measured task: `rows` [n, knobs] are the candidates that ran, and `seconds` [n] the times
    of a call. `is_random` [n] marks a random sample of the schedule space. `noise` is the typical
    relative difference between two measurements of a candidate in different batches."""

    layer: Layer
    space: Space
    rows: Population
    seconds: Floats
    is_random: npt.NDArray[np.bool_]
    noise: float

    @property
    def best_s(self) -> float:
        """The seconds that a call of the fastest candidate takes."""
        return float(self.seconds.min())

    @functools.cached_property
    def described(self) -> tuple[Features, Floats]:
        """The rows' features for the learned model, and the analytic model's predicted seconds for
        each row."""
        return self.space.described(self.rows)

    @property
    def sample(self) -> npt.NDArray[np.int64]:
        """The indices of the rows in the random sample, or of all rows if none of the sample
        ran."""
        random_rows = np.flatnonzero(self.is_random)
        return random_rows if len(random_rows) else np.arange(len(self.rows))


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """The measurements of a target's tasks, run with `threads` threads."""

    folder: Path
    target: Target
    threads: int

    @classmethod
    def under(cls, folder: Path, target: Target, threads: int) -> Corpus:
        """Return the corpus of the target's class of machines, in a folder."""
        core = as_cpu(target).core
        name = _file_name(f"{core or target.cpu}-{target.fingerprint}-{threads}")
        return cls(folder / name, target, threads)

    def records(self, layer: Layer) -> FileRecords:
        return FileRecords(self.folder / f"{_file_name(layer.name)}.jsonl")

    def known(self, layer: Layer) -> Known | None:
        """Return a measured task, or None if it has no records."""
        choice = layer.task(self.target, self.threads)
        space = choice.space
        times: dict[Pairs, list[float]] = {}
        tried = set[bytes]()
        for record in self._usable(self.records(layer), choice):
            tried.add(space.row(record.knobs).tobytes())
            if math.isfinite(record.seconds):
                times.setdefault(record.decisions, []).append(record.seconds)
        if not times:
            return None
        rows = np.stack([space.row(dict(decisions)) for decisions in times])
        newest = [sorted(times_of[-TIMES:]) for times_of in times.values()]
        seconds = np.array([times_of[0] for times_of in newest])
        most = max(map(len, times.values()))
        tried_most = np.array(
            [len(times_of) >= min(most, 2 * TIMES) for times_of in times.values()]
        )
        best = seconds[tried_most].min()
        seconds[~tried_most & (seconds < best)] = best  # It was lucky, and was not measured again.
        apart = [times_of[1] / times_of[0] - 1 for times_of in newest if len(times_of) == TIMES]
        noise = statistics.median(apart) if apart else 0.0
        in_order = (row.tobytes() for row in random_rows(space))
        drawn = set(itertools.takewhile(tried.__contains__, in_order))
        is_random = np.array([row.tobytes() in drawn for row in rows])
        return Known(layer, space, rows, seconds, is_random, noise)

    def all_known(self, layers: Sequence[Layer]) -> list[Known]:
        """Return all measured tasks."""
        return [task for layer in layers if (task := self.known(layer)) is not None]

    def collect(
        self,
        layers: Sequence[Layer],
        trials: int,
        budget_s: float,
        say: Callable[[str], None],
    ) -> None:
        """Measure until every task has `trials` candidates, or for `budget_s` seconds, one batch of
        each task in turn. Repeated measurements get a third of the time. A batch during which the
        machine drifted is reported to `say`, and measured again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        choices = {layer.name: layer.task(self.target, self.threads) for layer in layers}
        deadline = time.monotonic() + budget_s
        with (
            LocalDevice() as device,
            CompilePool(helpers_for(0, tunes=True), self.target, self.threads) as helpers,
        ):
            tasks = {choice.task.key: choice.task for choice in choices.values()}
            policy = TimingPolicy(threads=self.threads, min_repeats=_SAMPLES, min_time_s=_SAMPLED_S)
            measurer = TaskMeasurer(
                tasks, self.target, device.runner, device.blobs, policy, helpers
            )
            collectors = [
                _Collector(self, layer, choices[layer.name], measurer) for layer in layers
            ]
            open_ones = list(collectors)
            while open_ones and time.monotonic() < deadline - budget_s * _AGAIN:
                open_ones = [
                    collector for collector in open_ones if self._goes_on(collector, trials, say)
                ]
                say(f"{sum(collector.trials for collector in collectors)} trials")
            for times in range(2, 2 * TIMES + 1):
                left = deque(
                    (collector, batch)
                    for collector in collectors
                    for batch in collector.again(times)
                )
                while left and time.monotonic() < deadline:
                    collector, batch = left.popleft()
                    with _told(say):
                        collector.measure(batch)
                        continue
                    left.append((collector, batch))

    def _goes_on(self, collector: _Collector, trials: int, say: Callable[[str], None]) -> bool:
        """Measure a batch of a task. Return whether there are more candidates to measure."""
        with _told(say):
            return collector.advance(trials)
        return True

    def _usable(self, records: FileRecords, choice: ScheduledTask) -> list[TuningRecord]:
        records_of_task = usable(
            records, choice.task.key, self.target.fingerprint, self.threads, choice.space.rule
        )
        return [record for record in records_of_task if choice.space.contains(record.knobs)]


class _Collector:
    """The measurement of a task's candidates, which are added to its records."""

    def __init__(
        self, corpus: Corpus, layer: Layer, choice: ScheduledTask, measurer: TaskMeasurer
    ) -> None:
        self._corpus, self._layer, self._choice = corpus, layer, choice
        self._records = corpus.records(layer)
        self._measurer = measurer
        self._model = CostModel()
        self._search = EvolutionarySearch(choice.task.key, choice.space, self._model)
        # The times of each candidate, infinite if it failed.
        self._times: dict[Pairs, list[float]] = {}
        measured = corpus._usable(self._records, choice)
        self._learn(
            Trial(record.knobs, CandidateResult(record.status, record.samples_ns))
            for record in measured
        )
        self._random = random_rows(choice.space)
        rows = choice.space.candidates()
        self._ranked = rows[np.argsort(choice.space.cost(rows), kind="stable")]

    @property
    def trials(self) -> int:
        """The number of measured candidates, each counted once."""
        return len(self._search.trials)

    def advance(self, trials: int) -> bool:
        """Measure a batch of new candidates. Return False if none is left."""
        wanted = min(BATCH, trials - self.trials)
        batch = self._batch(wanted) if wanted > 0 else []
        if batch:
            self.measure(batch)
        return bool(batch)

    def again(self, times: int) -> Iterator[list[dict[str, int]]]:
        """Yield batches of candidates that are to be measured `times` times in all, and have fewer
        measurements so far."""
        first = {candidate: min(samples[:TIMES]) for candidate, samples in self._times.items()}
        ran = sorted(
            (candidate for candidate in first if first[candidate] < math.inf),
            key=lambda candidate: first[candidate],
        )
        if times > TIMES:
            wanted = ran[:FASTEST]
        elif times == 2 or self._layer.held_out:
            wanted = ran
        else:
            wanted = [candidate for candidate in ran if first[candidate] < NEAR * first[ran[0]]]
        wanted = [candidate for candidate in wanted if len(self._times[candidate]) < times]
        for start in range(0, len(wanted), BATCH):
            yield [dict(candidate) for candidate in wanted[start : start + BATCH]]

    def measure(self, batch: Sequence[dict[str, int]]) -> None:
        """Measure candidates, record the times, and train the tuner's model on candidates measured
        for the first time."""
        key, space = self._choice.task.key, self._choice.space
        results = self._measurer.measure(key, space, batch)
        for decisions, result in zip(batch, results, strict=True):
            self._records.add(self._record(decisions, result))
        self._learn(map(Trial, batch, results))

    def _batch(self, wanted: int) -> list[dict[str, int]]:
        turn = _TURNS[self.trials // BATCH % len(_TURNS)]
        if turn == _SEARCHED:
            self._model.fit()
            return self._search.propose(wanted)
        proposals: list[dict[str, int]] = []
        for row in self._random if turn == _RANDOM else self._ranked:
            decisions = self._choice.space.decisions(row)
            if pairs(decisions) not in self._times:
                proposals.append(decisions)
            if len(proposals) == wanted:
                break
        return proposals

    def _learn(self, trials: Iterable[Trial]) -> None:
        new = []
        for trial in trials:
            samples = self._times.setdefault(pairs(trial.decisions), [])
            if not samples:
                new.append(trial)
            samples.append(trial.seconds)
        self._search.update(new)

    def _record(self, decisions: dict[str, int], result: CandidateResult) -> TuningRecord:
        return TuningRecord.of(
            self._choice.space.rule,
            decisions,
            result,
            task=self._choice.task.key,
            fingerprint=self._corpus.target.fingerprint,
            threads=self._corpus.threads,
        )


@contextlib.contextmanager
def _told(say: Callable[[str], None]) -> Iterator[None]:
    """A context that reports the device fault "drift" to `say` and continues; other device faults
    are raised."""
    try:
        yield
    except DeviceFaultError as error:
        if error.fault is not DeviceFault.DRIFTED:
            raise
        say(str(error))


def _file_name(text: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in text)


def random_rows(space: Space) -> Population:
    """Return the valid rows of a schedule space in a random order, the same for every call."""
    rows = space.candidates()
    return rows[np.random.default_rng(0).permutation(len(rows))]
