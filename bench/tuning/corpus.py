"""What is known of the tasks: the time of every candidate that was ever measured, by task.

A class of machines has a folder, and each task a file of tuning records in it. Measuring goes on
from what is there. A task's batches are random rows, the analytic model's first ones and what the
tuner's search proposes, in turn. Each batch begins and ends with one candidate that is always the
same, the task's **anchor**: what it takes is the machine's pace at that moment, by which the times
of the batch are divided. Last, the fastest are measured again: that says what measurements err by,
and keeps a lucky one from counting as the best known.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.tuning.tasks import Layer
from farrier.cost_model import CostModel
from farrier.kernels import Helpers
from farrier.kernels.choose import ScheduledTask
from farrier.kernels.helpers import helpers_for
from farrier.measure import TaskMeasurer
from farrier.measure.local import LocalDevice
from farrier.records import FileRecords, TuningRecord, usable
from farrier.records.record import pairs
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.trial import DeviceFaultError, Trial
from farrier.space import Features, Population, Space
from farrier.space.space import Floats
from farrier.targets import Target
from farrier_device.measurement import CandidateResult, DeviceFault, TimingPolicy

BATCH = 16
FASTEST = 16  # of each task, that are measured again
REPEATS = 3  # times
_SAMPLES, _SAMPLED_S = 10, 0.02  # calls and seconds of each candidate, at least
_RANDOM, _RANKED, _SEARCHED = range(3)
_TURNS = (_RANDOM, _RANKED, _SEARCHED, _RANDOM, _SEARCHED)  # what a task's batches are


@dataclasses.dataclass(frozen=True)
class Known:
    """A task: `rows` [n, knobs] are what ran, with `seconds` [n] of a call. `is_random` [n] says
    which of them are a random sample of the space. `noise` is what two measurements of a candidate
    in different batches differ by, typically, relative."""

    layer: Layer
    space: Space
    rows: Population
    seconds: Floats
    is_random: npt.NDArray[np.bool_]
    noise: float

    @property
    def best_s(self) -> float:
        """Of a call of the fastest."""
        return float(self.seconds.min())

    @functools.cached_property
    def described(self) -> tuple[Features, Floats]:
        """What the learned model sees of the rows, and the analytic model's seconds."""
        return self.space.described(self.rows)

    @property
    def sample(self) -> npt.NDArray[np.int64]:
        """The numbers of the random rows, or of all where none of these ran."""
        found = np.flatnonzero(self.is_random)
        return found if len(found) else np.arange(len(self.rows))


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """The records of a target's tasks, run by `threads`."""

    folder: Path
    target: Target
    threads: int

    @classmethod
    def under(cls, folder: Path, target: Target, threads: int) -> Corpus:
        """That of the target's class."""
        name = _file_name(f"{target.core or target.cpu}-{target.fingerprint}-{threads}")
        return cls(folder / name, target, threads)

    def records(self, layer: Layer) -> FileRecords:
        return FileRecords(self.folder / f"{_file_name(layer.name)}.jsonl")

    def known(self, layer: Layer) -> Known | None:
        """What the records say of a task; None where they say nothing."""
        choice = layer.task(self.target, self.threads)
        space = choice.space
        times: dict[tuple[tuple[str, int], ...], list[float]] = {}
        tried = set[bytes]()
        for record, seconds in _paced(self._usable(self.records(layer), choice)):
            tried.add(space.row(record.knobs).tobytes())
            if math.isfinite(seconds):
                times.setdefault(record.decisions, []).append(seconds)
        if not times:
            return None
        rows = np.stack([space.row(dict(decisions)) for decisions in times])
        # The first time of what was chosen for being fast is lucky; the others are not.
        fair = [found[1:] or found for found in times.values()]
        of_rows = np.array([statistics.median(found) for found in fair])
        repeated = np.array([len(found) > 1 for found in times.values()])
        if repeated.any():  # what was fast once, and was not tried again, is no best
            lucky = ~repeated & (of_rows < of_rows[repeated].min())
            lucky[0] = False  # the anchor, which is in every batch
            of_rows[lucky] = of_rows[repeated].min()
        apart = [abs(one / other - 1) for found in fair for one, other in itertools.pairwise(found)]
        noise = statistics.median(apart) if apart else 0.0
        in_order = (row.tobytes() for row in random_rows(space))
        drawn = set(itertools.takewhile(tried.__contains__, in_order))
        is_random = np.array([row.tobytes() in drawn for row in rows])
        return Known(layer, space, rows, of_rows, is_random, noise)

    def all_known(self, layers: Sequence[Layer]) -> list[Known]:
        """What the records say of each task of which they say anything."""
        return [found for layer in layers if (found := self.known(layer)) is not None]

    def collect(
        self,
        layers: Sequence[Layer],
        trials: int,
        budget_s: float,
        say: Callable[[str], None],
    ) -> None:
        """Measures until there are `trials` of every task, or for `budget_s` seconds; a batch of
        each task in turn. The second part, what is measured again, has a tenth of the budget. A
        batch during which the machine changed is told to `say`, and measured anew."""
        self.folder.mkdir(parents=True, exist_ok=True)
        choices = {layer.name: layer.task(self.target, self.threads) for layer in layers}
        deadline = time.monotonic() + budget_s
        with (
            LocalDevice() as device,
            Helpers(helpers_for(0, tunes=True), self.target, self.threads) as helpers,
        ):
            tasks = {choice.task.key: choice.task for choice in choices.values()}
            policy = TimingPolicy(threads=self.threads, min_repeats=_SAMPLES, min_time_s=_SAMPLED_S)
            measurer = TaskMeasurer(
                tasks, self.target, device.runner, device.blobs, policy, helpers
            )
            collectors = [
                _Collector(self, self.records(layer), choices[layer.name], measurer)
                for layer in layers
            ]
            open_ones = list(collectors)
            while open_ones and time.monotonic() < deadline - budget_s / 10:
                open_ones = [one for one in open_ones if self._goes_on(one, trials, say)]
                say(f"{sum(one.trials for one in collectors)} trials")
            for one in collectors:
                with _told(say):
                    one.repeat(deadline)

    def _goes_on(self, one: _Collector, trials: int, say: Callable[[str], None]) -> bool:
        """Whether a task has more to measure, after a batch of it."""
        with _told(say):
            return one.advance(trials)
        return True

    def _usable(self, records: FileRecords, choice: ScheduledTask) -> list[TuningRecord]:
        found = usable(
            records, choice.task.key, self.target.fingerprint, self.threads, choice.space.rule
        )
        return [record for record in found if choice.space.contains(record.knobs)]


class _Collector:
    """Measures candidates of one task into its records."""

    def __init__(
        self, corpus: Corpus, records: FileRecords, choice: ScheduledTask, measurer: TaskMeasurer
    ) -> None:
        self._corpus, self._records, self._choice = corpus, records, choice
        self._measurer = measurer
        self._model = CostModel()
        self._search = EvolutionarySearch(choice.task.key, choice.space, self._model)
        self._times = collections.Counter[tuple[tuple[str, int], ...]]()  # that each was measured
        measured = corpus._usable(records, choice)
        self._anchor = measured[0].knobs if measured else choice.space.default()
        for record in measured:
            self._times[record.decisions] += 1
            if self._times[record.decisions] == 1:
                result = CandidateResult(record.status, record.samples_ns)
                self._search.update([Trial(record.knobs, result)])
        self._random = random_rows(choice.space)
        rows = choice.space.candidates()
        self._ranked = rows[np.argsort(choice.space.cost(rows), kind="stable")]

    @property
    def trials(self) -> int:
        """Candidates that were measured, each counted once."""
        return len(self._search.trials)

    def advance(self, trials: int) -> bool:
        """Measures a batch; False once nothing is left to measure."""
        wanted = min(BATCH, trials - max(self.trials, 1))  # one is the anchor
        batch = self._batch(wanted) if wanted > 0 else []
        if batch:
            self._measure(batch, is_new=True)
        return bool(batch)

    def repeat(self, deadline: float) -> None:
        """Measures the fastest again, unless that was done; no longer than to the deadline."""
        fastest = sorted(self._search.trials, key=lambda trial: trial.seconds)[:FASTEST]
        ran = [trial.decisions for trial in fastest if math.isfinite(trial.seconds)]
        for _ in range(REPEATS):
            again = [one for one in ran if self._times[pairs(one)] <= REPEATS]
            if again and time.monotonic() < deadline:
                self._measure(again, is_new=False)

    def _batch(self, wanted: int) -> list[dict[str, int]]:
        turn = _TURNS[self.trials // BATCH % len(_TURNS)]
        if turn == _SEARCHED:
            self._model.fit()
            return self._search.propose(wanted)
        known = {pairs(self._anchor), *self._times}
        found: list[dict[str, int]] = []
        for row in self._random if turn == _RANDOM else self._ranked:
            decisions = self._choice.space.decisions(row)
            if pairs(decisions) not in known:
                found.append(decisions)
            if len(found) == wanted:
                break
        return found

    def _measure(self, batch: Sequence[dict[str, int]], *, is_new: bool) -> None:
        """Measures candidates between two of the anchor; what is new is learned."""
        key, space = self._choice.task.key, self._choice.space
        others = [decisions for decisions in batch if decisions != self._anchor]
        batch = [self._anchor, *others, self._anchor]
        results = self._measurer.measure(key, space, batch)
        for decisions, result in zip(batch, results, strict=True):
            self._records.add(self._record(decisions, result))
            self._times[pairs(decisions)] += 1
        first = 1 if self._search.trials else 0  # the anchor is new once
        if is_new:
            self._search.update(map(Trial, batch[first:-1], results[first:-1]))

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
    """Says where the machine changed meanwhile, and goes on; other faults of a device last."""
    try:
        yield
    except DeviceFaultError as error:
        if error.fault is not DeviceFault.DRIFTED:
            raise
        say(str(error))


def _paced(records: Sequence[TuningRecord]) -> Iterator[tuple[TuningRecord, float]]:
    """Each record with its seconds at the task's usual pace: those of a batch over what the anchor
    took before or after it, times what the anchor takes typically. What else happens on a machine
    only adds time, so the lesser of the two counts."""
    if not records:
        return
    anchor = records[0].decisions
    places = [place for place, record in enumerate(records) if record.decisions == anchor]
    usual = statistics.median(records[place].seconds for place in places)
    yield records[0], usual
    for start, end in itertools.pairwise([*places, len(records)]):
        around = [record.seconds for record in (records[start], *records[end : end + 1])]
        taken = min(around)
        pace = taken / usual if math.isfinite(taken) else 1.0
        for record in records[start + 1 : end]:
            yield record, record.seconds / pace


def _file_name(text: str) -> str:
    return "".join(char if char.isalnum() else "-" for char in text)


def random_rows(space: Space) -> Population:
    """The allowed rows of a space in a random order, the same each time."""
    rows = space.candidates()
    return rows[np.random.default_rng(0).permutation(len(rows))]
