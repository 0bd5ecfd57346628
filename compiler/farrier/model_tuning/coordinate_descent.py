"""Search for schedules within the model: rounds of candidates of all kernels at once.

One run of a variant measures a candidate of every kernel within the model, so this learns more per
second than measuring kernels alone. Results are not compared with a reference, so a winner is
checked alone before it is used. A round measures its candidates briefly; the few that seem to win
run a second time for longer, since the best of many short measurements is mostly a lucky one. Even
then the gain is small compared with the noise of a shared machine. Therefore the new schedules are
finally measured against the initial ones, for a fixed share of the total time, and must win again.

Several devices measure different candidates of the same kernels, each in comparison with the
schedules to beat; meanwhile the candidates of the next round are compiled. If a variant does not
run, only the candidate that caused the failure is dropped.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeAlias

from farrier.compile_pool.choose import MARGIN, ScheduledTask
from farrier.cost_model import CostModel
from farrier.errors import CompilerError
from farrier.ir.graph import Graph
from farrier.model_tuning.compare import Comparison, ComparisonError, predicted, race_cost, total
from farrier.model_tuning.in_model_selection import Decisions, InModelSelection, schedule_record
from farrier.model_tuning.variant import Variant
from farrier.progress import Listener, TrialsMeasured, Warned, ignore
from farrier.progress.clock import Clock
from farrier.records import Context, MemoryRecords, RecordStore, TuningRecord, usable
from farrier.records.record import Pairs, pairs
from farrier.schedule_search import Measurer
from farrier.schedule_search.evolution import EvolutionarySearch
from farrier.schedule_search.trial import DeviceFaultError, Trial
from farrier_device.measurement import CandidateResult

_ROUND_S = 15.0  # The usual limit of a round.
_ROUNDS = 3  # The rest of the time should fit this number of rounds.
_FEWEST = 8  # A round with fewer candidates is not worth its time.
_MOST = 10  # The most candidates of one kernel in a round.
_CANDIDATES = 150  # The most candidates of all kernels in a round.
_RUNS = 30  # The number of runs for which a variant is measured.
_VARIANT_S = (0.05, 0.5)  # The least and the greatest time to measure a variant.
_CONFIRMED = 2  # The candidates of a kernel that run once more.
_LONGER = 3  # The factor by which their second run is longer.
_CHECK_S = 0.5  # The time to compare a kernel with its reference, until one is measured.
_WINNERS = 4  # The typical number of kernels for which a round finds a better schedule.
_FAULTS = 3  # The attempts at a comparison that the device could not run.
# The greatest share of the time for measuring new schedules against the initial ones.
_REMATCH = 0.15
_SUSPICIONS = 1  # A candidate is dropped after this number of failed variants.
_PATIENCE = 3  # A kernel rests after this number of rounds without a better schedule.
_LEAST_GAP = 0.1  # The least possible gain of a kernel's time that is assumed.


_Candidate: TypeAlias = tuple[str, Pairs]  # A task, and decisions about it.
_Candidates: TypeAlias = Mapping[str, Sequence[Decisions]]  # By task.


@dataclasses.dataclass(frozen=True, slots=True)
class _Round:
    """The amounts that one round measures: the total number of candidates, the number of variants
    among which each device distributes its candidates, and the seconds for each variant. `again` is
    the number of variants that run a second time. `is_last` is true if the time is too short for
    another round."""

    candidates: int
    variants: int
    variant_s: float
    again: int
    is_last: bool


class CoordinateDescent:
    """A search in rounds for the best variant, starting from rivals that differ in algorithms.

    Each kernel has a search of its own. The searches share a cost model, which is trained on
    measurements in the model and, as if they were of other kernels, on measurements alone. A
    kernel's share of the candidates is proportional to its possible gain: its share of the time,
    times its distance from the lower bound of all schedules.
    """

    def __init__(
        self,
        prepared: Graph,
        comparison: Comparison,
        measurer: Measurer,
        records: RecordStore,
        seed: int,
        clock: Clock,
        base: CostModel | None = None,
    ) -> None:
        self._prepared = prepared
        self._comparison = comparison
        self._measurer = measurer
        self._records = records
        self._seed = seed
        self._clock = clock
        self._model = CostModel(seed, base=base)
        self._searches: dict[str, EvolutionarySearch] = {}
        # The number of rounds in a row without a better schedule.
        self._barren: collections.Counter[str] = collections.Counter()
        self._check_s = _CHECK_S
        self._rematch_s = 0.0
        self._trials = 0
        self._ahead: Future[_Candidates] | None = None  # The candidates of the next round.
        # Candidates from a variant that did not run, to be tried again.
        self._again: dict[str, list[Decisions]] = {}
        self._suspected: collections.Counter[_Candidate] = collections.Counter()

    def run(self, rivals: Sequence[Variant], listener: Listener) -> Variant:
        """Search until the clock's time, minus that of the final race, is over or no kernel has
        candidates left. Return the best variant; the first of `rivals` if not even one round fits
        the time."""
        self._rematch_s = _REMATCH * max(0.0, self._clock.left)
        before: dict[str, Decisions] = {}
        for rival in rivals:
            for key, choice in rival.choices.items():
                before.setdefault(key, dict(choice.decisions))
                if key not in self._searches:
                    self._take_up(key, choice, rival)
        if self._plan(rivals) is None:
            rivals = rivals[:1]
        with ThreadPoolExecutor(1) as compiling:
            while (size := self._plan(rivals)) is not None:
                try:
                    tried = self._tried(rivals, size)
                    if max(map(len, tried.values()), default=1) == 1 and len(rivals) == 1:
                        self._clock.ended("no kernel has a candidate left, or all have rested")
                        break
                    if self._comparison.devices is not None and not size.is_last:
                        self._ahead = compiling.submit(self._candidates, rivals, size)
                    best = self._round(rivals, tried, size, listener)
                except (ComparisonError, CompilerError) as error:
                    listener(Warned(f"the search in the model ends early: {error}"))
                    self._clock.ended(str(error))
                    break
                rivals = [best]
                self._tell(best, listener)
            else:
                self._clock.ended("its time is up")
        return self._rematch(before, rivals[0], listener)

    def _plan(self, rivals: Sequence[Variant]) -> _Round | None:
        """Return the size of a round that fits the remaining time; None if none fits."""
        first, comparison = rivals[0], self._comparison
        left = self._clock.left - race_cost(comparison, first) - self._rematch_s
        left -= _WINNERS * self._check_s
        short, long = _VARIANT_S
        wanted_s = min(max(_RUNS * predicted(first), short), long)
        variant_s = comparison.cost(first, wanted_s) * len(rivals)
        again = max(2, -(-(1 + _CONFIRMED) // _calls_of_largest(first)))
        confirming = again * comparison.cost(first, _LONGER * wanted_s)
        least_s = confirming + again * variant_s + _FEWEST * comparison.compile_s
        if left < least_s:
            return None
        round_s = max(min(left / _ROUNDS, _ROUND_S), least_s)
        is_last = left - round_s < least_s
        if is_last:
            round_s = min(left, 2 * _ROUND_S)
        # Half of the time is for compiling candidates, half for measuring them.
        variants = min(again + int((round_s - least_s) / 2 / variant_s), 1 + _MOST)
        compiled_s = round_s - confirming - variants * variant_s
        if comparison.devices is not None:  # The devices measure during compilation.
            compiled_s = round_s
        most = _CANDIDATES * (comparison.devices or 1)
        candidates = min(int(compiled_s / comparison.compile_s), most)
        return _Round(candidates, variants, wanted_s, again, is_last)

    def _rematch(
        self, before: Mapping[str, Decisions], best: Variant, listener: Listener
    ) -> Variant:
        """Measure the new schedules directly against the schedules `before`, and return `best` with
        the old schedule of each kernel whose new one does not win again."""
        finalists: dict[str, list[Decisions]] = {}
        for key, choice in best.choices.items():
            new = dict(choice.decisions)
            usual = before.get(key, new)
            finalists[key] = [usual] if usual == new else [usual, new]
        left = self._clock.left - race_cost(self._comparison, best)
        seconds = min(left, self._rematch_s) / 2
        if max(map(len, finalists.values()), default=1) == 1:
            return best
        if seconds < self._comparison.cost(best, 0.0):
            return best
        finals = InModelSelection(self._prepared, [best], finalists, self._records, self._seed)
        try:
            return finals.run(self._comparison, seconds, listener, places=2)
        except (ComparisonError, CompilerError) as error:
            listener(
                Warned(f"the new schedules were not measured against the initial ones: {error}")
            )
            return best

    def _tried(self, rivals: Sequence[Variant], size: _Round) -> _Candidates:
        """Return, for each kernel, the schedules to measure in this round: its current schedule,
        followed by new candidates that compile."""
        ahead, self._ahead = self._ahead, None
        candidates = self._candidates(rivals, size) if ahead is None else ahead.result()
        choices = {key: choice for rival in rivals for key, choice in rival.choices.items()}
        return {
            key: [
                dict(choice.decisions),
                *(
                    candidate
                    for candidate in candidates.get(key, ())
                    if candidate != choice.decisions and self._is_compiled(choice, candidate)
                ),
            ]
            for key, choice in choices.items()
        }

    def _candidates(self, rivals: Sequence[Variant], size: _Round) -> _Candidates:
        """Return the next candidates of each kernel, and compile them. The number of candidates is
        in proportion to the kernel's possible gain. Candidates that do not compile are included."""
        self._model.fit()
        choices = {key: choice for rival in rivals for key, choice in rival.choices.items()}
        gains = {
            key: 0.0 if self._barren[key] >= _PATIENCE else total(choice) * _gap(choice, rivals[0])
            for key, choice in choices.items()
        }
        calls, devices = _calls(*rivals), self._comparison.devices or 1
        most = {key: min(size.variants * calls[key] - 1, _MOST) * devices for key in choices}
        counts = shared_out(size.candidates, gains, most)
        candidates: dict[str, list[Decisions]] = {}
        for key in choices:
            again = self._again.pop(key, [])
            proposed = self._searches[key].propose(counts[key]) if counts[key] else []
            candidates[key] = [*again, *proposed]
        self._comparison.compile(
            dataclasses.replace(choices[key], decisions=candidate)
            for key, several in candidates.items()
            for candidate in several
        )
        return candidates

    def _is_compiled(self, choice: ScheduledTask, decisions: Decisions) -> bool:
        return self._comparison.is_compiled(dataclasses.replace(choice, decisions=decisions))

    def _round(
        self,
        rivals: Sequence[Variant],
        tried: _Candidates,
        size: _Round,
        listener: Listener,
    ) -> Variant:
        """Measure the candidates, repeat the measurement of the apparent winners, and return the
        best variant."""
        self._trials += sum(len(several) - 1 for several in tried.values())
        records, again = MemoryRecords(), MemoryRecords()
        finals = InModelSelection(self._prepared, rivals, tried, records, self._seed, self._records)
        first = finals.run(self._comparison, size.variant_s, ignore, size.variants)
        blamed = self._blamed(finals.failed, tried, records)
        before, calls = _as_before(first, tried, records), _calls(first)
        few = {
            key: _promising(choice, records)[: size.again * calls[key]]
            for key, choice in before.choices.items()
        }
        best = before
        if max(map(len, few.values()), default=1) > 1:
            finals = InModelSelection(self._prepared, [before], few, again, self._seed)
            long_s = _LONGER * size.variant_s
            best = finals.run(self._comparison, long_s, listener, size.again)
            best = self._checked(before, best)
            self._keep(before, best, again)
        if self._ahead is not None:
            wait([self._ahead])  # The other thread uses the searches until it ends.
        self._learn(best, records, again, blamed)
        for record in itertools.chain(records, again, blamed):
            self._records.add(dataclasses.replace(record, context=Context.SCREENED))
        for key, several in tried.items():
            is_left = key in best.choices and best.choices[key].decisions == several[0]
            self._barren[key] = self._barren[key] + (len(several) > 1) if is_left else 0
        return best

    def _blamed(
        self, failed: Sequence[Variant], tried: _Candidates, records: RecordStore
    ) -> list[TuningRecord]:
        """Return records of the candidates in failed variants that also fail alone. The other
        candidates are combined differently in a later round, and dropped after a second such
        failure."""
        ran = {(record.task, record.decisions) for record in records}
        suspects: dict[_Candidate, ScheduledTask] = {}
        for variant in failed:
            for choice in variant.choices.values():
                suspect = choice.task.key, pairs(choice.decisions)
                if suspect not in ran and choice.decisions != tried[choice.task.key][0]:
                    suspects[suspect] = choice
        blamed = []
        for (key, decisions), choice in suspects.items():
            result = self._alone(key, choice)
            if result is not None and not result.samples_ns:
                blamed.append(
                    schedule_record(
                        failed[0].settings,
                        key,
                        choice.space,
                        dict(decisions),
                        result,
                        self._seed,
                        Context.SCREENED,
                    )
                )
            elif self._suspected[key, decisions] < _SUSPICIONS:
                self._suspected[key, decisions] += 1
                self._again.setdefault(key, []).append(dict(decisions))
        return blamed

    def _take_up(self, key: str, choice: ScheduledTask, variant: Variant) -> None:
        """Start the search for better schedules of the kernel `key`, and let it learn from the
        kernel's records."""
        settings, space = variant.settings, choice.space
        search = EvolutionarySearch(key, space, self._model, self._seed, Context.MODEL)
        fingerprint = settings.target.fingerprint
        usable_records = usable(self._records, key, fingerprint, settings.threads, *space.rules)
        search.update(
            _trial(record) for record in usable_records if record.context is not Context.ALONE
        )
        alone = [_trial(record) for record in usable_records if record.context is Context.ALONE]
        search.learn_elsewhere(alone, Context.ALONE)
        self._searches[key] = search

    def _checked(self, before: Variant, after: Variant) -> Variant:
        """Return the variant `after`, with the schedule in `before` of each kernel whose new
        schedule computes wrong results when measured alone."""
        choices: dict[str, ScheduledTask] = {}
        begin, count = time.monotonic(), 0
        for key, choice in after.choices.items():
            choices[key] = choice
            if choice.decisions != before.choices[key].decisions:
                count += 1
                if not self._is_right(key, choice):
                    choices[key] = before.choices[key]
        if count:
            self._check_s = (time.monotonic() - begin) / count
        return dataclasses.replace(after, choices=choices)

    def _is_right(self, key: str, choice: ScheduledTask) -> bool:
        """Run a kernel alone, and check that its results are equal to those of the reference."""
        result = self._alone(key, choice)
        return result is not None and bool(result.samples_ns)

    def _alone(self, key: str, choice: ScheduledTask) -> CandidateResult | None:
        """Measure a kernel alone; return None if no device could measure."""
        for _ in range(_FAULTS):
            # This number of faults in a row is bad luck, not the kernel's fault.
            with contextlib.suppress(DeviceFaultError):
                (result,) = self._measurer.measure(key, choice.space, [choice.decisions])
                return result
        return None

    def _keep(self, before: Variant, after: Variant, again: RecordStore) -> None:
        """Add two results to the records for each kernel whose schedule changes from `before` to
        `after`: the times of the old and of the new schedule, which `again` has."""
        for key, choice in after.choices.items():
            if choice.decisions != before.choices[key].decisions:
                records_of_task = {
                    record.decisions: record for record in again if record.task == key
                }
                self._records.add(records_of_task[pairs(before.choices[key].decisions)])
                self._records.add(records_of_task[pairs(choice.decisions)])

    def _learn(self, best: Variant, *sources: Iterable[TuningRecord]) -> None:
        """Update the searches of the kernels with these records. Their times come from variants
        that were measured against each other."""
        for key, choice in best.choices.items():
            if key not in self._searches:
                self._take_up(key, choice, best)
        by_task = collections.defaultdict(list)
        for record in itertools.chain(*sources):
            by_task[record.task].append(_trial(record))
        for key, trials in by_task.items():
            if key in self._searches:
                self._searches[key].update(trials)

    def _tell(self, best: Variant, listener: Listener) -> None:
        listener(
            TrialsMeasured(
                trials=self._trials,
                planned=None,
                best_ms=predicted(best) * 1e3,
                seconds_left=max(0.0, self._clock.left),
                task="all kernels",
            )
        )


def _trial(record: TuningRecord) -> Trial:
    return Trial(record.knobs, CandidateResult(record.status, record.samples_ns))


def _calls(*variants: Variant) -> collections.Counter[str]:
    """Return, by kernel, the largest number of calls in any one of the variants."""
    counts: collections.Counter[str] = collections.Counter()
    for variant in variants:
        counts |= collections.Counter(call.task for call in variant.calls)
    return counts


def _calls_of_largest(variant: Variant) -> int:
    """Return how often the variant calls the kernel that takes the largest part of its time."""
    key = max(variant.choices, key=lambda key: total(variant.choices[key]))
    return _calls(variant)[key]


def _gap(choice: ScheduledTask, variant: Variant) -> float:
    """Return the fraction of a kernel's time that a better schedule could save at most, according
    to the lower bound of that time."""
    bound = choice.space.bound / variant.settings.threads
    return max(1 - bound * choice.calls / total(choice), _LEAST_GAP)


def shared_out(count: int, gains: Mapping[str, float], most: Mapping[str, int]) -> dict[str, int]:
    """Return the number of candidates of each kernel: `count` divided in proportion to the possible
    gains, limited by `most`; the excess goes to the other kernels."""
    shares, whole = dict.fromkeys(gains, 0), sum(gains.values())
    open_ones = [key for key, gain in gains.items() if gain > 0]
    for key in sorted(open_ones, key=lambda key: most[key] / gains[key]):
        shares[key] = min(round(count * gains[key] / whole), most[key])
        count, whole = count - shares[key], whole - gains[key]
    return shares


def _as_before(variant: Variant, tried: _Candidates, records: Iterable[TuningRecord]) -> Variant:
    """Return the variant with the schedule of each kernel with which its candidates were compared
    (the first in `tried`), and the time of that schedule."""
    measured = {(record.task, record.decisions): record.seconds for record in records}
    choices = dict(variant.choices)
    for key, (usual, *_) in tried.items():
        if key in choices and choices[key].decisions != usual:
            seconds = measured.get((key, pairs(usual)), choices[key].measured_s)
            choices[key] = dataclasses.replace(choices[key], decisions=usual, measured_s=seconds)
    return dataclasses.replace(variant, choices=choices)


def _promising(choice: ScheduledTask, records: Iterable[TuningRecord]) -> list[Decisions]:
    """Return the current schedule of a kernel, followed by the fastest of the candidates that were
    clearly faster in a brief measurement."""
    usual = pairs(choice.decisions)
    measured = {r.decisions: r.seconds for r in records if r.task == choice.task.key}
    bar = (1 - MARGIN) * measured.get(usual, 0.0)
    faster = sorted(
        (s, candidate_decisions) for candidate_decisions, s in measured.items() if s < bar
    )
    return [
        dict(choice.decisions),
        *(dict(candidate_decisions) for _, candidate_decisions in faster[:_CONFIRMED]),
    ]
