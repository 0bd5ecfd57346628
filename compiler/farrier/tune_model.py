"""Tunes a model: algorithms in the whole model, kernels alone, the best of those in the model."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from farrier.algorithms import known_algorithms, measure_algorithms, plausible, unmeasured
from farrier.choose import Choice
from farrier.compare import CallTimes, Comparison, ComparisonError
from farrier.ir.graph import Graph
from farrier.options import CompileOptions
from farrier.partition import Task
from farrier.passes.choose_algorithms import layers
from farrier.progress import Listener, VariantsCompared, Warned
from farrier.records import Context, RecordStore, TuningRecord, usable
from farrier.records.record import pairs
from farrier.search import Measurer, TuningTask, tune
from farrier.variant import Variant, make_variant
from farrier_device.measurement import CandidateResult, Status

_ALGORITHMS_SHARE = 0.25  # of a time budget, at most
_FINALS_SHARE = 0.1
_SHORTEST_S = 5.0  # a share of the budget that building and measuring variants fits into
_VARIANT_S = 0.8  # to measure a variant for
_LEAST_S = 0.05
_MARGIN = 0.01  # what a schedule must win over the default by

Decisions = dict[str, int]


def tune_model(
    prepared: Graph,
    default: Variant,
    comparison: Comparison,
    measurer_of: Callable[[Mapping[str, Task]], Measurer],
    records: RecordStore,
    options: CompileOptions,
    listener: Listener,
) -> Variant:
    """The best variant found within the options' trials or budget; `prepared` is the graph that
    `default` was made of. What was measured goes to `records`."""
    begin = time.monotonic()
    trials = _choose_algorithms(prepared, default, comparison, records, options, listener)
    chosen = _with_known_algorithms(prepared, default, records)
    settings = chosen.settings
    left = None
    if options.budget_s is not None:
        spent = time.monotonic() - begin
        left = max(0.0, options.budget_s * (1 - _FINALS_SHARE) - spent)
    choices = chosen.choices
    finalists = tune(
        [TuningTask(key, c.task.name, c.space, c.calls) for key, c in choices.items()],
        settings.target.fingerprint,
        measurer_of({key: choice.task for key, choice in choices.items()}),
        records,
        trials=trials,
        budget_s=left,
        seed=options.seed,
        threads=settings.threads,
        listener=listener,
    )
    return _finals(chosen, finalists, comparison, records, options, listener)


def known_variant(prepared: Graph, default: Variant, records: RecordStore) -> Variant:
    """The best variant that `records` know, with nothing measured."""
    return _with_known_algorithms(prepared, default, records).with_known(records)


def _with_known_algorithms(prepared: Graph, default: Variant, records: RecordStore) -> Variant:
    known = known_algorithms(prepared, default.settings, records)
    if all(
        layer.fastest is known.get(layer.key, layer.fastest)
        for layer in layers(prepared, default.settings)
    ):
        return default
    return make_variant(prepared, dataclasses.replace(default.settings, algorithms=known))


def _choose_algorithms(
    prepared: Graph,
    default: Variant,
    comparison: Comparison,
    records: RecordStore,
    options: CompileOptions,
    listener: Listener,
) -> int | None:
    """Measures the algorithms that no record decides, as far as the options leave time for it.
    Gives the trials that are left."""
    wanted = unmeasured(prepared, default.settings, records)
    if not wanted:
        return options.trials
    needed = sum(len(plausible(layer)) for layer in wanted)
    if options.trials is not None and needed > options.trials // 2:
        return options.trials
    if options.budget_s is not None and options.budget_s * _ALGORITHMS_SHARE < _SHORTEST_S:
        return options.trials
    try:
        count = measure_algorithms(
            prepared, default, wanted, comparison, records, _VARIANT_S, options.seed
        )
    except ComparisonError as error:
        listener(Warned(f"algorithms are chosen without measuring: {error}"))
        return options.trials
    known = known_algorithms(prepared, default.settings, records)
    changed = sum(known[layer.key] is not layer.fastest for layer in wanted)
    listener(VariantsCompared("algorithms", count, changed))
    return None if options.trials is None else options.trials - needed


def _finals(
    variant: Variant,
    finalists: Mapping[str, Sequence[Decisions]],
    comparison: Comparison,
    records: RecordStore,
    options: CompileOptions,
    listener: Listener,
) -> Variant:
    """Measures the finalists of all kernels where they stand: each variant of the model has one of
    every kernel. The first finalist, the default, stays where none beats it clearly."""
    choices = {key: _measured_alone(variant, key, records) for key in variant.choices}
    variant = dataclasses.replace(variant, choices=choices)
    count = max(map(len, finalists.values()), default=1)
    if count == 1:
        return variant
    contestants = [_with(variant, finalists, place) for place in range(count)]
    seconds = _VARIANT_S
    if options.budget_s is not None:
        seconds = min(seconds, max(_LEAST_S, options.budget_s * _FINALS_SHARE / 2 / count))
    try:
        times = comparison.by_call(contestants, seconds)
    except ComparisonError as error:
        listener(Warned(f"schedules stay as they were, unmeasured in the model: {error}"))
        return variant
    for key, rivals in finalists.items():
        if len(rivals) == 1:
            continue
        samples = [_samples(key, calls) for calls in times[: len(rivals)]]
        for decisions, one in zip(rivals, samples, strict=True):
            records.add(_record(variant, key, decisions, one, options.seed))
        medians = [CandidateResult(Status.OK, one).median_ns for one in samples]
        place = min(range(len(rivals)), key=medians.__getitem__)
        if medians[place] >= (1 - _MARGIN) * medians[0]:
            place = 0
        choices[key] = dataclasses.replace(
            choices[key],
            decisions=rivals[place],
            source="tuned",
            measured_s=medians[place] / 1e9,
        )
    best = dataclasses.replace(variant, choices=choices)
    changed = sum(c.decisions != finalists[key][0] for key, c in choices.items())
    listener(VariantsCompared("schedules", count, changed))
    return best


def _measured_alone(variant: Variant, key: str, records: RecordStore) -> Choice:
    """The choice with what was measured of it, if anything was."""
    choice, settings = variant.choices[key], variant.settings
    known = usable(
        records, key, settings.target.fingerprint, settings.threads, choice.space.rule_name
    )
    seconds = [r.seconds for r in known if r.knobs == choice.decisions and r.samples_ns]
    if not seconds:
        return choice
    return dataclasses.replace(choice, source="tuned", measured_s=min(seconds))


def _with(variant: Variant, finalists: Mapping[str, Sequence[Decisions]], place: int) -> Variant:
    """The variant with each kernel's finalist at `place`, its first where it has fewer."""
    choices: dict[str, Choice] = {}
    for key, choice in variant.choices.items():
        mine = finalists[key]
        decisions = mine[place] if place < len(mine) else mine[0]
        choices[key] = dataclasses.replace(choice, decisions=decisions)
    return dataclasses.replace(variant, choices=choices)


def _samples(task: str, calls: Sequence[CallTimes]) -> tuple[int, ...]:
    """Nanoseconds of a call of the task in each run of the model, the mean over its calls."""
    mine = [one.samples_ns for one in calls if one.call.task == task]
    return tuple(round(sum(run) / len(mine)) for run in zip(*mine, strict=True))


def _record(
    variant: Variant, key: str, decisions: Decisions, samples: tuple[int, ...], seed: int
) -> TuningRecord:
    space = variant.choices[key].space
    return TuningRecord(
        task=key,
        fingerprint=variant.settings.target.fingerprint,
        threads=variant.settings.threads,
        rule=space.rule_name,
        decisions=pairs(decisions),
        trace=str(space.trace(decisions)),
        status=Status.OK,
        samples_ns=samples,
        seed=seed,
        created=time.time(),
        context=Context.MODEL,
    )
