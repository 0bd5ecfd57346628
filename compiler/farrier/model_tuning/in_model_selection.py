"""Select the best schedule of every kernel by measurements within the complete model."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from farrier.compile_pool.choose import MARGIN, ScheduledTask
from farrier.ir.graph import Graph
from farrier.model_tuning.algorithms import algorithm_record, computes, known_algorithms
from farrier.model_tuning.compare import Comparison, FailedVariant, Outcome, mean_samples
from farrier.model_tuning.variant import Variant, make_variant
from farrier.passes import Settings, layers
from farrier.passes.algorithm import Layer
from farrier.progress import Listener, VariantsCompared
from farrier.records import Context, RecordStore, TuningRecord, usable
from farrier.records.record import pairs
from farrier.space import Space
from farrier_device.measurement import CandidateResult, Status, fast_quartile_mean

Decisions: TypeAlias = dict[str, int]
# By task and decisions: the nanoseconds of each run, one tuple for each call or device.
_Measured: TypeAlias = dict[str, dict[tuple[tuple[str, int], ...], list[tuple[int, ...]]]]

# A kernel is spread over several devices if each gets this number of finalists, not counting the
# one to beat.
_A_DEVICE = 2


class InModelSelection:
    """A selection among variants (rivals) that differ in algorithms and, for each kernel, among a
    few finalists, of which the first is the current schedule.

    Measurements are added to `records`, those of algorithms to `algorithms`, which also holds those
    of other layers.
    """

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
        self._spaces: dict[str, Space] = {}
        self._measured_by: set[str] = set()  # The names of a farm's devices.
        self.failed: list[Variant] = []  # The contestants that did not run.

    def run(
        self, comparison: Comparison, seconds: float, listener: Listener, places: int = 1
    ) -> Variant:
        """Measure all finalists within the model, and return the best variant.

        Each rival runs for `seconds` in at least `places` copies, in which the calls use different
        finalists, so that every finalist is used by some call. If there are several devices, each
        measures a part of a kernel's finalists against the current schedule. Variants that did not
        run are in `failed`. Raises ComparisonError.
        """
        if len(self._rivals) == 1 and all(len(mine) == 1 for mine in self._finalists.values()):
            return self._with_times(self._rivals[0], {})
        contests = [self._contestants(share, places) for share in self._shares(comparison.devices)]
        outcomes = comparison.contests(contests, seconds)
        measured: _Measured = {}
        for contestants, times in zip(contests, outcomes, strict=True):
            self._add(measured, contestants, times)
        best = self._judge(measured)
        self._judge_algorithms(best)
        winner = self._with_times(self._winner(), best)
        changed = sum(
            choice.decisions != self._finalists.get(key, [choice.decisions])[0]
            for key, choice in winner.choices.items()
        )
        listener(VariantsCompared("schedules", sum(map(len, contests)), changed))
        return winner

    def _shares(self, devices: int | None) -> list[dict[str, list[Decisions]]]:
        """Return, for each device, the candidate schedules (finalists) that it measures by kernel,
        the current schedule always included. The number of devices is limited so that each measures
        several finalists of the kernel that has the most."""
        most = max((len(mine) - 1 for mine in self._finalists.values()), default=1)
        count = max(1, min(devices or 1, most // _A_DEVICE))
        return [
            {key: [mine[0], *mine[1 + n :: count]] for key, mine in self._finalists.items()}
            for n in range(count)
        ]

    def _contestants(
        self, finalists: Mapping[str, Sequence[Decisions]], places: int
    ) -> list[Variant]:
        """Return at least `places` copies of each rival variant. Their calls use the candidate
        schedules (finalists) of their kernels in turn, so that all finalists are measured equally
        often. Which call uses which finalist is random."""
        for rival in self._rivals:
            counts = collections.Counter(call.task for call in rival.calls)
            needed = [-(-len(finalists[key]) // count) for key, count in counts.items()]
            places = max(places, *needed)
        following = {key: itertools.cycle(mine) for key, mine in finalists.items()}
        rng = random.Random(self._seed)
        return [_mixed(rival, following, rng) for _ in range(places) for rival in self._rivals]

    def _add(
        self,
        measured: _Measured,
        contestants: Sequence[Variant],
        outcomes: Sequence[Outcome],
    ) -> None:
        """Add the measurements of one device to `measured`. Devices of the same class differ in
        speed. The times are therefore scaled so that the current schedule takes as long as on the
        first device."""
        mine: _Measured = {}
        for variant, outcome in zip(contestants, outcomes, strict=True):
            if isinstance(outcome, FailedVariant):
                self.failed.append(variant)
                continue
            for times in outcome:
                self._measured_by.update(filter(None, times.device.split(",")))
                choice = variant.choices[times.call.task]
                several = mine.setdefault(choice.task.key, {})
                several.setdefault(pairs(choice.decisions), []).append(times.samples_ns)
                self._spaces[choice.task.key] = choice.space
        for key, finalists in mine.items():
            usual = pairs(self._finalists[key][0])
            if usual not in finalists:
                continue  # Without it, other times cannot be compared.
            by_decisions = measured.setdefault(key, {})
            scale = 1.0
            if usual in by_decisions:
                scale = _seconds(by_decisions[usual]) / _seconds(finalists[usual])
            for decisions, ran in finalists.items():
                scaled = [tuple(round(scale * ns) for ns in samples) for samples in ran]
                by_decisions.setdefault(decisions, []).extend(scaled)

    def _judge(self, measured: _Measured) -> dict[str, tuple[Decisions, float]]:
        """Return, by task, the best decisions and their seconds; the current schedule unless
        another one is clearly faster."""
        best = {}
        for key, ran in measured.items():
            samples = {decisions: mean_samples(several) for decisions, several in ran.items()}
            if len(samples) > 1:
                for decisions, merged in samples.items():
                    self._add_record(key, dict(decisions), merged)
            seconds = {d: fast_quartile_mean(merged) / 1e9 for d, merged in samples.items()}
            default = pairs(self._finalists[key][0])
            first = min(seconds, key=seconds.__getitem__)
            if seconds[first] >= (1 - MARGIN) * seconds[default]:
                first = default
            best[key] = (dict(first), seconds[first])
        return best

    def _add_record(self, key: str, decisions: Decisions, samples: tuple[int, ...]) -> None:
        # The measurements of one device are scaled by those of the others.
        result = CandidateResult(Status.OK, samples, device=",".join(sorted(self._measured_by)))
        self._records.add(
            schedule_record(
                self._settings,
                key,
                self._spaces[key],
                decisions,
                result,
                self._seed,
                Context.MODEL,
            )
        )

    def _judge_algorithms(self, best: Mapping[str, tuple[Decisions, float]]) -> None:
        """Record the time of each algorithm of a layer, with its best schedules, if several
        algorithms ran."""
        everywhere = layers(self._prepared, self._settings)
        for layer in {layer.key: layer for layer in everywhere}.values():
            ran = {
                rival.settings.algorithm_of(layer): rival
                for rival in self._rivals
                if all(call.task in best for call in rival.calls)
            }
            alike = [other for other in everywhere if other.key == layer.key]
            if len(ran) > 1:
                for way, rival in ran.items():
                    ns = round(
                        sum(_layer_seconds(other, rival, best) for other in alike)
                        / len(alike)
                        * 1e9
                    )
                    record = algorithm_record(layer, way, self._settings, (ns,), self._seed)
                    devices = ",".join(sorted(self._measured_by))
                    self._algorithms.add(dataclasses.replace(record, device=devices))

    def _winner(self) -> Variant:
        """Return the variant with the best algorithms according to the measurements so far."""
        if len(self._rivals) == 1:
            return self._rivals[0]
        best = known_algorithms(self._prepared, self._settings, self._algorithms)
        settings = dataclasses.replace(self._settings, algorithms=best)
        wanted = [settings.algorithm_of(layer) for layer in layers(self._prepared, settings)]
        for rival in self._rivals:
            ours = layers(self._prepared, rival.settings)
            if [rival.settings.algorithm_of(layer) for layer in ours] == wanted:
                return rival
        return make_variant(self._prepared, settings, self._rivals[0])

    def _with_times(self, variant: Variant, best: Mapping[str, tuple[Decisions, float]]) -> Variant:
        """Return the variant with the best schedules and their measured times."""
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
        """Return the choice with the shortest recorded time of its kernel, if there is a record of
        its schedule."""
        settings, rules = self._settings, choice.space.rules
        usable_records = usable(
            self._records, key, settings.target.fingerprint, settings.threads, *rules
        )
        decided = [r for r in usable_records if r.context is not Context.SCREENED]
        seconds = [r.seconds for r in decided if r.knobs == choice.decisions and r.samples_ns]
        if not seconds:
            return choice
        return dataclasses.replace(choice, source="tuned", measured_s=min(seconds))


def schedule_record(
    settings: Settings,
    task: str,
    space: Space,
    decisions: Decisions,
    result: CandidateResult,
    seed: int,
    context: Context,
) -> TuningRecord:
    """Return the tuning record of a schedule that was measured within the model. `context` is the
    context of the measurement; it distinguishes brief measurements, which only select candidates
    (screening)."""
    return TuningRecord.of(
        space.rule_of(decisions),
        decisions,
        result,
        task=task,
        fingerprint=settings.target.fingerprint,
        threads=settings.threads,
        trace=space.trace(decisions),
        seed=seed,
        context=context,
    )


def _seconds(ran: Sequence[tuple[int, ...]]) -> float:
    return fast_quartile_mean(mean_samples(ran))


def _mixed(
    rival: Variant, following: Mapping[str, Iterator[Decisions]], rng: random.Random
) -> Variant:
    """Return a copy of a variant with other schedules. Each call receives one of the next schedules
    that `following` yields for its kernel. If a kernel has several calls, these schedules are
    shuffled among them."""
    drawn = {}
    for key, count in collections.Counter(call.task for call in rival.calls).items():
        drawn[key] = list(itertools.islice(following[key], count))
        rng.shuffle(drawn[key])
    return rival.with_schedules([drawn[call.task].pop() for call in rival.calls])


def _layer_seconds(
    layer: Layer, variant: Variant, best: Mapping[str, tuple[Decisions, float]]
) -> float:
    """Return the seconds of the calls that compute a layer, each with its best schedule."""
    return sum(best[call.task][1] for call in variant.calls if computes(call.origin, layer))
