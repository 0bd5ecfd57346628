"""The last of tuning: from the schedules that won in the model to better ones, in the model.

One run of a variant measures a candidate of every kernel at once, where it stands, so this finds
more in a second than measuring kernels alone, which it cannot replace: what runs in the model is
not compared with a reference. So what wins is, alone, before it is taken.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from farrier.choose import Choice
from farrier.cost_model import CostModel
from farrier.errors import CompilerError
from farrier.ir.graph import Graph
from farrier.progress import Listener, Warned
from farrier.records import Context, MemoryRecords, RecordStore, TuningRecord, usable
from farrier.records.record import pairs
from farrier.search import Measurer
from farrier.search.evolution import EvolutionarySearch
from farrier.search.trial import DeviceFaultError, Trial
from farrier.tuning.compare import Comparison, ComparisonError
from farrier.tuning.finals import Decisions, Finals
from farrier.tuning.variant import Variant
from farrier_device.measurement import CandidateResult

_CANDIDATES = 100  # a round; a kernel has a share of them as large as of the model's time
_MOST = 10  # of one kernel
_RUNS = 30  # of a variant, a round
_VARIANT_S = (0.1, 0.5)  # to measure a variant for: at least, at most
_FIRST_ROUND_S = 15.0  # what a round may take, until one has shown it
_PATIENCE = 3  # rounds that leave a kernel as it is before it rests


class Climb:
    """Rounds of candidates, from a variant whose schedules were measured in the model.

    Each kernel has a search of its own. They share a cost model, of what was measured in the model
    and, as if those were other kernels, alone.
    """

    def __init__(
        self,
        prepared: Graph,
        comparison: Comparison,
        measurer: Measurer,
        records: RecordStore,
        seed: int,
    ) -> None:
        self._prepared = prepared
        self._comparison = comparison
        self._measurer = measurer
        self._records = records
        self._seed = seed
        self._model = CostModel(seed)
        self._searches: dict[str, EvolutionarySearch] = {}
        self._barren: dict[str, int] = {}  # rounds in a row that left a kernel as it was

    def run(self, variant: Variant, deadline: float, listener: Listener) -> Variant:
        """The best that was found by `deadline` (of the monotonic clock), or before all kernels
        rest."""
        round_s = _FIRST_ROUND_S
        for key, choice in variant.choices.items():
            self._take_up(key, choice, variant)
        while (begin := time.monotonic()) + round_s <= deadline:
            self._model.fit()
            whole = sum(map(_total, variant.choices.values()))
            tried = {
                key: self._tried(key, choice, round(_CANDIDATES * _total(choice) / whole))
                for key, choice in variant.choices.items()
            }
            if max(map(len, tried.values()), default=1) == 1:
                break
            found = MemoryRecords()
            finals = Finals(self._prepared, [variant], tried, found, self._seed)
            self._comparison.forget()
            try:
                best = finals.run(self._comparison, _seconds(variant), listener)
                best = self._checked(variant, best)
            except (ComparisonError, CompilerError, DeviceFaultError) as error:
                listener(Warned(f"the search in the model ends early: {error}"))
                break
            self._learn(variant, best, found)
            variant = best
            round_s = time.monotonic() - begin
        return variant

    def _take_up(self, key: str, choice: Choice, variant: Variant) -> None:
        """Begins a kernel's search with what the records know of it."""
        settings, space = variant.settings, choice.space
        search = EvolutionarySearch(key, space, self._model, self._seed)
        fingerprint = settings.target.fingerprint
        known = usable(self._records, key, fingerprint, settings.threads, space.rule_name)
        search.update(_trial(record) for record in known if record.context is Context.MODEL)
        alone = [r for r in known if r.context is Context.ALONE and space.contains(r.knobs)]
        if alone:
            rows = np.stack([space.row(record.knobs) for record in alone])
            seconds = np.array([_trial(record).seconds for record in alone])
            self._model.add(f"{key} alone", space.features(rows), space.cost(rows), seconds)
        self._searches[key] = search

    def _tried(self, key: str, choice: Choice, count: int) -> Sequence[Decisions]:
        """The kernel's schedule, and up to `count` new candidates where it does not rest."""
        usual = dict(choice.decisions)
        if self._barren.get(key, 0) >= _PATIENCE:
            return [usual]
        proposed = self._searches[key].propose(min(count, _MOST))
        others = [one for one in proposed if one != usual and _can_be_scheduled(choice, one)]
        return [usual, *others]

    def _checked(self, before: Variant, after: Variant) -> Variant:
        """`after` with the old schedule of each kernel whose new one is not right alone."""
        choices: dict[str, Choice] = {}
        for key, choice in after.choices.items():
            choices[key] = choice
            if choice.decisions != before.choices[key].decisions:
                (result,) = self._measurer.measure(key, choice.space, [choice.decisions])
                if not result.samples_ns:
                    choices[key] = before.choices[key]
        return dataclasses.replace(after, choices=choices)

    def _learn(self, before: Variant, after: Variant, found: MemoryRecords) -> None:
        """Tells the searches what was measured side by side, and the records what the new schedules
        take and what those before them took."""
        for key, choice in after.choices.items():
            known = {record.decisions: record for record in found if record.task == key}
            usual = before.choices[key]
            was, now = known.get(pairs(usual.decisions)), known.get(pairs(choice.decisions))
            if was is None or now is None:
                continue
            self._searches[key].update(map(_trial, known.values()))
            if was is now:
                self._barren[key] = self._barren.get(key, 0) + 1
            else:
                self._barren[key] = 0
                self._records.add(was)
                self._records.add(now)


def _trial(record: TuningRecord) -> Trial:
    return Trial(record.knobs, CandidateResult(record.status, record.samples_ns))


def _total(choice: Choice) -> float:
    """Seconds of a kernel's calls, measured or predicted."""
    row = choice.space.row(choice.decisions)
    known = choice.measured_s
    return choice.calls * (float(choice.space.cost(row[None])[0]) if known is None else known)


def _seconds(variant: Variant) -> float:
    """How long to measure a variant for."""
    least, most = _VARIANT_S
    return min(max(_RUNS * sum(map(_total, variant.choices.values())), least), most)


def _can_be_scheduled(choice: Choice, decisions: Mapping[str, int]) -> bool:
    try:
        choice.space.schedule(decisions)
    except CompilerError:
        return False
    return True
