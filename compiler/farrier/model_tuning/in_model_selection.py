"""In-model selection: the best schedules of every kernel, each where it stands in the model."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.ir.graph import Graph
from farrier.kernels.choose import MARGIN, ScheduledTask
from farrier.model_tuning.algorithms import algorithm_record, computes, known_algorithms
from farrier.model_tuning.compare import CallTimes, Comparison, mean_samples
from farrier.model_tuning.variant import Variant, make_variant
from farrier.passes.choose_algorithms import Layer, chosen, layers
from farrier.progress import Listener, VariantsCompared
from farrier.records import Context, RecordStore, TuningRecord, usable
from farrier.records.record import pairs
from farrier.space import Space
from farrier_device.measurement import Status, undisturbed

Decisions: TypeAlias = dict[str, int]


class InModelSelection:
    """Variants of one model that differ in algorithms, and the finalists of each of their kernels,
    the one to beat first. What is measured goes to `records`; what that says of algorithms, to
    `algorithms`, which know those of other layers."""

    def __init__(
        self,
        prepared: Graph,
        rivals: Sequence[Variant],
        finalists: Mapping[str, Sequence[Decisions]],
        records: RecordStore,
        seed: int,
        algorithms: RecordStore | None = None,
    ) -> None:
        self._algorithms = records if algorithms is None else algorithms
        self._prepared = prepared
        self._rivals = rivals
        self._finalists = finalists
        self._records = records
        self._seed = seed
        self._settings = rivals[0].settings

    def run(
        self, comparison: Comparison, seconds: float, listener: Listener, places: int = 1
    ) -> Variant:
        """The best of all: each rival runs so often that all finalists have a call to compute, at
        least `places` times, each time with others, for `seconds`. Raises ComparisonError."""
        if len(self._rivals) == 1 and all(len(mine) == 1 for mine in self._finalists.values()):
            return self._told(self._rivals[0], {})
        contestants = self._contestants(places)
        times = comparison.by_call(contestants, seconds)
        best = self._judge(contestants, times)
        self._judge_algorithms(best)
        winner = self._told(self._winner(), best)
        changed = sum(
            choice.decisions != self._finalists.get(key, [choice.decisions])[0]
            for key, choice in winner.choices.items()
        )
        listener(VariantsCompared("schedules", len(contestants), changed))
        return winner

    def _contestants(self, places: int) -> list[Variant]:
        """The rivals by turns, each call with the next of its kernel's finalists, so that those are
        measured equally often; which of its calls one computes is drawn at random."""
        for rival in self._rivals:
            counts = collections.Counter(call.task for call in rival.calls)
            needed = [-(-len(self._finalists[key]) // count) for key, count in counts.items()]
            places = max(places, *needed)
        following = {key: itertools.cycle(mine) for key, mine in self._finalists.items()}
        rng = random.Random(self._seed)
        return [_mixed(rival, following, rng) for _ in range(places) for rival in self._rivals]

    def _judge(
        self, contestants: Sequence[Variant], times: Sequence[Sequence[CallTimes]]
    ) -> dict[str, tuple[Decisions, float]]:
        """The best decisions of each task and their seconds; the default's where none beats them
        clearly."""
        calls: dict[str, dict[tuple[tuple[str, int], ...], list[tuple[int, ...]]]] = {}
        spaces: dict[str, Space] = {}
        for variant, measured_calls in zip(contestants, times, strict=True):
            for one_call in measured_calls:
                choice = variant.choices[one_call.call.task]
                mine = calls.setdefault(choice.task.key, {})
                mine.setdefault(pairs(choice.decisions), []).append(one_call.samples_ns)
                spaces[choice.task.key] = choice.space
        best = {}
        for key, ran in calls.items():
            measured = {decisions: mean_samples(several) for decisions, several in ran.items()}
            if len(measured) > 1:
                for decisions, one in measured.items():
                    self._records.add(self._record(key, spaces[key], dict(decisions), one))
            seconds = {d: undisturbed(one) / 1e9 for d, one in measured.items()}
            default = pairs(self._finalists[key][0])
            first = min(seconds, key=seconds.__getitem__)
            if seconds[first] >= (1 - MARGIN) * seconds[default]:
                first = default
            best[key] = (dict(first), seconds[first])
        return best

    def _judge_algorithms(self, best: Mapping[str, tuple[Decisions, float]]) -> None:
        """Records how each algorithm of a layer does with its best schedule, where several ran."""
        everywhere = layers(self._prepared, self._settings)
        for layer in {layer.key: layer for layer in everywhere}.values():
            ran = {chosen(layer, rival.settings): rival for rival in self._rivals}
            alike = [other for other in everywhere if other.key == layer.key]
            if len(ran) > 1:
                for way, rival in ran.items():
                    ns = round(sum(_of(other, rival, best) for other in alike) / len(alike) * 1e9)
                    record = algorithm_record(layer, way, self._settings, (ns,), self._seed)
                    self._algorithms.add(record)

    def _winner(self) -> Variant:
        """The variant with the algorithms that are best by now."""
        if len(self._rivals) == 1:
            return self._rivals[0]
        known = known_algorithms(self._prepared, self._settings, self._algorithms)
        settings = dataclasses.replace(self._settings, algorithms=known)
        wanted = [chosen(layer, settings) for layer in layers(self._prepared, settings)]
        for rival in self._rivals:
            ours = layers(self._prepared, rival.settings)
            if [chosen(layer, rival.settings) for layer in ours] == wanted:
                return rival
        return make_variant(self._prepared, settings, self._rivals[0])

    def _told(self, variant: Variant, best: Mapping[str, tuple[Decisions, float]]) -> Variant:
        """The variant with the best schedules, and what was measured of each."""
        choices = {}
        for key, choice in variant.choices.items():
            if key in best and len(self._finalists[key]) > 1:
                decisions, seconds = best[key]
                choices[key] = dataclasses.replace(
                    choice, decisions=decisions, source="tuned", measured_s=seconds
                )
            else:
                choices[key] = self._measured_alone(key, choice)
        return dataclasses.replace(variant, choices=choices)

    def _measured_alone(self, key: str, choice: ScheduledTask) -> ScheduledTask:
        """The choice with what was measured of it, if anything was."""
        settings, rule = self._settings, choice.space.rule
        known = usable(self._records, key, settings.target.fingerprint, settings.threads, rule)
        decided = [r for r in known if r.context is not Context.SCREENED]
        seconds = [r.seconds for r in decided if r.knobs == choice.decisions and r.samples_ns]
        if not seconds:
            return choice
        return dataclasses.replace(choice, source="tuned", measured_s=min(seconds))

    def _record(
        self, key: str, space: Space, decisions: Decisions, samples: tuple[int, ...]
    ) -> TuningRecord:
        return TuningRecord(
            task=key,
            fingerprint=self._settings.target.fingerprint,
            threads=self._settings.threads,
            rule=space.rule.name,
            version=space.rule.version,
            decisions=pairs(decisions),
            trace=space.trace(decisions),
            status=Status.OK,
            samples_ns=samples,
            seed=self._seed,
            created=time.time(),
            context=Context.MODEL,
        )


def _mixed(
    rival: Variant, following: Mapping[str, Iterator[Decisions]], rng: random.Random
) -> Variant:
    """The rival with the schedules that follow, those of a kernel's calls in any order."""
    drawn = {}
    for key, count in collections.Counter(call.task for call in rival.calls).items():
        drawn[key] = list(itertools.islice(following[key], count))
        rng.shuffle(drawn[key])
    return rival.with_schedules([drawn[call.task].pop() for call in rival.calls])


def _of(layer: Layer, variant: Variant, best: Mapping[str, tuple[Decisions, float]]) -> float:
    """Seconds of the calls that compute a layer, each with its best schedule."""
    return sum(best[call.task][1] for call in variant.calls if computes(call.origin, layer))
