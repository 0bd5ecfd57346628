"""The search for schedules in the model: rounds of candidates of all kernels at once.

One run of a variant measures a candidate of every kernel where it stands, so this finds more in a
second than measuring kernels alone, which it cannot replace: what runs in the model is not compared
with a reference. So what wins is, alone, before it is taken. A round measures its candidates
briefly; the few that seem to win run once more, longer, for of many short measurements the best is
mostly a lucky one. What they win by is still little beside what a shared machine takes, so
at the end the new schedules meet those of the beginning, for a share of all the time, and must win
again.

Several devices measure different candidates of the same kernels, each beside the schedules that are
to be beaten; while they do, the next round's candidates are compiled. A variant that does not run
costs the candidate that is to blame, and no other.
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

_ROUND_S = 15.0  # of a round, usually at most
_ROUNDS = 3  # to fit what is left of the clock
_FEWEST = 8  # candidates that are worth a round
_MOST = 10  # candidates of one kernel, a round
_CANDIDATES = 150  # of all kernels
_RUNS = 30  # of a variant
_VARIANT_S = (0.05, 0.5)  # to measure a variant for: at least, at most
_CONFIRMED = 2  # candidates of a kernel that run once more
_LONGER = 3  # times as long
_CHECK_S = 0.5  # to compare a kernel with its reference, until that is known
_WINNERS = 4  # kernels that a round finds a better schedule of, typically
_FAULTS = 3  # attempts at a comparison that the device could not make
_REMATCH = 0.15  # of the time, at most, to measure what was found beside what was there
_SUSPICIONS = 1  # variants with a candidate that did not run before it is let go
_PATIENCE = 3  # rounds that leave a kernel as it is before it rests
_LEAST_GAP = 0.1  # of a kernel's time, what better schedules may gain at least


_Candidate: TypeAlias = tuple[str, Pairs]  # a task, and decisions about it
_Candidates: TypeAlias = Mapping[str, Sequence[Decisions]]  # by task


@dataclasses.dataclass(frozen=True, slots=True)
class _Round:
    """How much to try: candidates in all, how many variants each device spreads them over, how long
    each of these runs, how many run once more, and whether there is time for another round."""

    candidates: int
    variants: int
    variant_s: float
    again: int
    is_last: bool


class CoordinateDescent:
    """Rounds of candidates, from rivals that differ in algorithms to the best of all.

    Each kernel has a search of its own. They share a cost model, of what was measured in the model
    and, as if those were other kernels, alone. A kernel's share of the candidates is what there may
    be to gain: its part of the time, by how far that is from what no schedule can beat.
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
        self._barren: collections.Counter[str] = collections.Counter()  # rounds in a row
        self._check_s = _CHECK_S
        self._rematch_s = 0.0
        self._trials = 0
        self._ahead: Future[_Candidates] | None = None  # of the next round
        self._again: dict[str, list[Decisions]] = {}  # candidates beside one that did not run
        self._suspected: collections.Counter[_Candidate] = collections.Counter()

    def run(self, rivals: Sequence[Variant], listener: Listener) -> Variant:
        """The best that is found before the clock's time is over, up to the race that follows, or
        all kernels rest; the first of the rivals where there is no time for a round."""
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
        """A round that fits what is left of the clock; None where none does."""
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
        # Half of the time to compile candidates, half to measure them
        variants = min(again + int((round_s - least_s) / 2 / variant_s), 1 + _MOST)
        compiled_s = round_s - confirming - variants * variant_s
        if comparison.devices is not None:  # they measure meanwhile
            compiled_s = round_s
        most = _CANDIDATES * (comparison.devices or 1)
        candidates = min(int(compiled_s / comparison.compile_s), most)
        return _Round(candidates, variants, wanted_s, again, is_last)

    def _rematch(
        self, before: Mapping[str, Decisions], best: Variant, listener: Listener
    ) -> Variant:
        """The best with the schedule `before` of each kernel whose new one does not win once more,
        measured beside that."""
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
            listener(Warned(f"what was found was not measured beside what was there: {error}"))
            return best

    def _tried(self, rivals: Sequence[Variant], size: _Round) -> _Candidates:
        """Each kernel's schedule and the candidates to measure beside it, those that compile."""
        ahead, self._ahead = self._ahead, None
        candidates = self._candidates(rivals, size) if ahead is None else ahead.result()
        choices = {key: choice for rival in rivals for key, choice in rival.choices.items()}
        return {
            key: [
                dict(choice.decisions),
                *(
                    one
                    for one in candidates.get(key, ())
                    if one != choice.decisions and self._is_compiled(choice, one)
                ),
            ]
            for key, choice in choices.items()
        }

    def _candidates(self, rivals: Sequence[Variant], size: _Round) -> _Candidates:
        """The next candidates of each kernel, compiled as far as they can be."""
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
            dataclasses.replace(choices[key], decisions=one)
            for key, several in candidates.items()
            for one in several
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
        """The best of the candidates, those that seemed to win having run again."""
        self._trials += sum(len(several) - 1 for several in tried.values())
        found, again = MemoryRecords(), MemoryRecords()
        finals = InModelSelection(self._prepared, rivals, tried, found, self._seed, self._records)
        first = finals.run(self._comparison, size.variant_s, ignore, size.variants)
        blamed = self._blamed(finals.failed, tried, found)
        before, calls = _as_before(first, tried, found), _calls(first)
        few = {
            key: _promising(choice, found)[: size.again * calls[key]]
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
            wait([self._ahead])  # until then the searches are its own
        self._learn(best, found, again, blamed)
        for record in itertools.chain(found, again, blamed):
            self._records.add(dataclasses.replace(record, context=Context.SCREENED))
        for key, several in tried.items():
            is_left = key in best.choices and best.choices[key].decisions == several[0]
            self._barren[key] = self._barren[key] + (len(several) > 1) if is_left else 0
        return best

    def _blamed(
        self, failed: Sequence[Variant], tried: _Candidates, found: RecordStore
    ) -> list[TuningRecord]:
        """Records of those candidates of variants that did not run which fail alone, too. The
        others are tried again, in other company; those that it happens to twice are let go."""
        ran = {(record.task, record.decisions) for record in found}
        suspects: dict[_Candidate, ScheduledTask] = {}
        for variant in failed:
            for choice in variant.choices.values():
                one = choice.task.key, pairs(choice.decisions)
                if one not in ran and choice.decisions != tried[choice.task.key][0]:
                    suspects[one] = choice
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
        """Begin a kernel's search with what the records know of it."""
        settings, space = variant.settings, choice.space
        search = EvolutionarySearch(key, space, self._model, self._seed, Context.MODEL)
        fingerprint = settings.target.fingerprint
        known = usable(self._records, key, fingerprint, settings.threads, *space.rules)
        search.update(_trial(record) for record in known if record.context is not Context.ALONE)
        alone = [_trial(record) for record in known if record.context is Context.ALONE]
        search.learn_elsewhere(alone, Context.ALONE)
        self._searches[key] = search

    def _checked(self, before: Variant, after: Variant) -> Variant:
        """`after` with the old schedule of each kernel whose new one is not right alone."""
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
        """Whether a kernel was seen to compute what its reference does."""
        result = self._alone(key, choice)
        return result is not None and bool(result.samples_ns)

    def _alone(self, key: str, choice: ScheduledTask) -> CandidateResult | None:
        """What a kernel does alone; None where no device could tell."""
        for _ in range(_FAULTS):
            with contextlib.suppress(DeviceFaultError):  # so many times that is bad luck
                (result,) = self._measurer.measure(key, choice.space, [choice.decisions])
                return result
        return None

    def _keep(self, before: Variant, after: Variant, again: RecordStore) -> None:
        """Tell the records what the new schedules take, and what those before them took."""
        for key, choice in after.choices.items():
            if choice.decisions != before.choices[key].decisions:
                known = {record.decisions: record for record in again if record.task == key}
                self._records.add(known[pairs(before.choices[key].decisions)])
                self._records.add(known[pairs(choice.decisions)])

    def _learn(self, best: Variant, *found: Iterable[TuningRecord]) -> None:
        """Tell the searches what was measured side by side."""
        for key, choice in best.choices.items():
            if key not in self._searches:
                self._take_up(key, choice, best)
        by_task = collections.defaultdict(list)
        for record in itertools.chain(*found):
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
    """How many calls each kernel computes in a variant that has it."""
    counts: collections.Counter[str] = collections.Counter()
    for variant in variants:
        counts |= collections.Counter(call.task for call in variant.calls)
    return counts


def _calls_of_largest(variant: Variant) -> int:
    """The calls of the kernel that takes the most time."""
    key = max(variant.choices, key=lambda key: total(variant.choices[key]))
    return _calls(variant)[key]


def _gap(choice: ScheduledTask, variant: Variant) -> float:
    """The part of a kernel's time by which it may become faster."""
    bound = choice.space.bound / variant.settings.threads
    return max(1 - bound * choice.calls / total(choice), _LEAST_GAP)


def shared_out(count: int, gains: Mapping[str, float], most: Mapping[str, int]) -> dict[str, int]:
    """Candidates of each kernel: its share of `count` by what it may gain, but so many at `most`;
    what is beyond that is shared among the others."""
    shares, whole = dict.fromkeys(gains, 0), sum(gains.values())
    open_ones = [key for key, gain in gains.items() if gain > 0]
    for key in sorted(open_ones, key=lambda key: most[key] / gains[key]):
        shares[key] = min(round(count * gains[key] / whole), most[key])
        count, whole = count - shares[key], whole - gains[key]
    return shares


def _as_before(variant: Variant, tried: _Candidates, found: Iterable[TuningRecord]) -> Variant:
    """The variant with the schedules that were to be beaten, and what they took."""
    measured = {(record.task, record.decisions): record.seconds for record in found}
    choices = dict(variant.choices)
    for key, (usual, *_) in tried.items():
        if key in choices and choices[key].decisions != usual:
            seconds = measured.get((key, pairs(usual)), choices[key].measured_s)
            choices[key] = dataclasses.replace(choices[key], decisions=usual, measured_s=seconds)
    return dataclasses.replace(variant, choices=choices)


def _promising(choice: ScheduledTask, found: Iterable[TuningRecord]) -> list[Decisions]:
    """A kernel's schedule, and the fastest of those that were faster."""
    usual = pairs(choice.decisions)
    measured = {r.decisions: r.seconds for r in found if r.task == choice.task.key}
    bar = (1 - MARGIN) * measured.get(usual, 0.0)
    faster = sorted((s, one) for one, s in measured.items() if s < bar)
    return [dict(choice.decisions), *(dict(one) for _, one in faster[:_CONFIRMED])]
