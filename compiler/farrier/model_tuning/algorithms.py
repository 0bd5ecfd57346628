"""Choose the algorithm of each convolution by measurements within the model, within the allowed
error.

A Winograd convolution does less arithmetic on larger weights, so its time depends on the other data
that the model streams through the caches: alone, F(4,3) at 14x14 beats F(2,3); in ResNet it may be
slower. Therefore a variant of the model is built for each algorithm, all variants are measured in
alternation, and layers of one shape use the fastest algorithm. The result is a record: `task` is
the layer's key, `rule` is "algorithm", and the single decision is the tile (0: the direct sum).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from farrier.ir.graph import Graph
from farrier.model_tuning.compare import CallTimes, Comparison, FailedVariant, mean_samples
from farrier.model_tuning.variant import Variant, make_variant
from farrier.passes import Settings, layers
from farrier.passes.algorithm import Algorithm, Layer
from farrier.records import Context, RecordStore, RuleId, TuningRecord, latest, usable
from farrier_device.measurement import CandidateResult, Status

RULE = RuleId("algorithm", version=6)
# The seconds that a variant is measured: usually, and if there is time for more.
_VARIANT_S = (0.8, 2.0)
_MARGIN = 0.03  # The share of time by which an algorithm must beat the predicted best one.
# Within this factor of the best measured time, an algorithm may win with another schedule.
_CLOSE = 1.1
_PLAUSIBLE = 1.6  # Beyond this factor of the best predicted time, an algorithm is not measured.


def known_seconds(layer: Layer, settings: Settings, records: RecordStore) -> dict[Algorithm, float]:
    """Return the recorded seconds of a layer's algorithms, including algorithms that are not
    allowed. The latest record of each algorithm counts, since these were measured together."""
    fingerprint = settings.target.fingerprint
    usable_records = usable(records, layer.key, fingerprint, settings.threads, RULE)
    ran = latest(record for record in usable_records if record.samples_ns)
    seconds = {record.knobs.get("tile", -1): record.seconds for record in ran.values()}
    return {way: seconds[way.tile] for way in Algorithm if way.tile in seconds}


def known_algorithms(
    prepared: Graph, settings: Settings, records: RecordStore
) -> dict[str, Algorithm]:
    """Return the best allowed algorithm of each layer, by the layer's key. It is the algorithm that
    is predicted to be the fastest, unless another is clearly faster in the records. Layers for
    which the predicted algorithm has no record are left out."""
    chosen = {}
    for layer in layers(prepared, settings):
        seconds = known_seconds(layer, settings, records)
        ran = {way: s for way, s in seconds.items() if way in layer.allowed}
        if layer.fastest in ran:
            best = min(ran, key=ran.__getitem__)
            is_clear = ran[best] < (1 - _MARGIN) * ran[layer.fastest]
            chosen[layer.key] = best if is_clear else layer.fastest
    return chosen


def algorithms_report(prepared: Graph, settings: Settings, records: RecordStore) -> dict[str, Any]:
    """Return a report of the allowed error of a layer, and of the algorithm of each convolution for
    which there is a choice.

    `error` is an upper bound of the error of a layer, as max |error| over max |result|;
    `measured_us` are means over layers of one shape, measured in a model.
    """
    rows = []
    for layer in layers(prepared, settings):
        way = settings.algorithm_of(layer)
        seconds = known_seconds(layer, settings, records)
        rows.append(
            {
                "nodes": layer.origin,
                "algorithm": way.value,
                "error": way.error_of(layer.operands),
                "by_arithmetic": layer.fastest.value,
                "measured_us": {other.value: s * 1e6 for other, s in seconds.items()},
            }
        )
    return {"max_layer_error": settings.max_layer_error, "layers": rows}


def plausible(layer: Layer) -> list[Algorithm]:
    """Return the allowed algorithms that may be the fastest according to the machine model."""
    bar = _PLAUSIBLE * min(map(layer.seconds, layer.allowed))
    return [way for way in layer.allowed if layer.seconds(way) <= bar or way is layer.fastest]


def contenders(
    prepared: Graph, default: Variant, chosen_one: Variant, records: RecordStore
) -> list[Variant]:
    """Return the variants to compare in the model: `chosen_one`, which has the best known algorithm
    of each layer, followed by variants with algorithms that are almost as fast and may win with
    other schedules."""
    settings = default.settings
    best = known_algorithms(prepared, settings, records)
    variants = [chosen_one]
    for way in Algorithm:
        algorithms = dict(best)
        for layer in layers(prepared, settings):
            seconds = known_seconds(layer, settings, records)
            if layer.key not in best or way not in layer.allowed or way not in seconds:
                continue
            if seconds[way] < _CLOSE * seconds[best[layer.key]]:
                algorithms[layer.key] = way
        if algorithms != best:
            other = dataclasses.replace(settings, algorithms=algorithms)
            variants.append(make_variant(prepared, other, default))
    return variants


def unmeasured(prepared: Graph, settings: Settings, records: RecordStore) -> list[Layer]:
    """Return one layer of each shape whose algorithm is still open: several algorithms are
    plausible, and the records do not decide between them."""
    shapes = {layer.key: layer for layer in layers(prepared, settings)}
    return [
        layer
        for layer in shapes.values()
        if len(plausible(layer)) > 1
        and not set(plausible(layer)) <= set(known_seconds(layer, settings, records))
    ]


def measure_algorithms(
    prepared: Graph,
    default: Variant,
    wanted: Sequence[Layer],
    comparison: Comparison,
    records: RecordStore,
    limit_s: float,
    seed: int,
) -> int:
    """Measure the plausible algorithms of the `wanted` layers in the model, within `limit_s`
    seconds, and add the results to `records`.

    Return the number of variants measured, 0 if the time is too short. A variant that fails to run
    adds no records. Raises ComparisonError.
    """
    variants = _variants(prepared, default, wanted)
    seconds = _seconds_of_each(variants, comparison, limit_s)
    if seconds is None:
        return 0
    settings = default.settings
    outcomes = comparison.pooled(variants, seconds)
    everywhere = layers(prepared, settings)
    for layer in wanted:
        alike = [other for other in everywhere if other.key == layer.key]
        for way in plausible(layer):
            samples = [
                _samples(alike, calls)
                for variant, calls in zip(variants, outcomes, strict=True)
                if variant.settings.algorithm_of(layer) is way
                and not isinstance(calls, FailedVariant)
            ]
            if samples:
                devices = next(c[0].device for c in outcomes if not isinstance(c, FailedVariant))
                record = algorithm_record(layer, way, settings, sum(samples, ()), seed)
                records.add(dataclasses.replace(record, device=devices))
    return len(variants)


def _variants(prepared: Graph, default: Variant, wanted: Sequence[Layer]) -> list[Variant]:
    """Return the variants to measure. The first is the default variant. Each other variant uses one
    algorithm in all layers of `wanted` for which it is plausible."""
    settings = default.settings
    variants = [default]
    for way in Algorithm:
        chosen_so = {layer.key: way for layer in wanted if way in plausible(layer)}
        if any(layer.fastest is not way for layer in wanted if layer.key in chosen_so):
            algorithms = {**settings.algorithms, **chosen_so}
            variants.append(
                make_variant(
                    prepared, dataclasses.replace(settings, algorithms=algorithms), default
                )
            )
    return variants


def _seconds_of_each(
    variants: Sequence[Variant], comparison: Comparison, limit_s: float
) -> float | None:
    """Return the seconds for which each variant is measured. All variants are compiled and measured
    within `limit_s`. Return None if the time is too short for that."""
    # The time of this compilation predicts that of the others.
    comparison.compile(variants[0].choices.values())
    further = {key for variant in variants for key in variant.choices} - set(variants[0].choices)
    left = limit_s - len(further) * comparison.compile_s
    usual, most = _VARIANT_S
    each = usual if limit_s == float("inf") else min(most, left / len(variants))
    if comparison.cost(variants[0], 0.0) > each:
        return None
    return (
        usual if limit_s == float("inf") else min(most, each * comparison.shares(variants[0], most))
    )


def _samples(alike: Sequence[Layer], calls: Sequence[CallTimes]) -> tuple[int, ...]:
    """Return the times of one layer in nanoseconds, the fastest first: the means over the layers in
    `alike`, which have the same shape, by rank (`mean_samples`)."""
    mine = [
        times.samples_ns for layer in alike for times in calls if computes(times.call.origin, layer)
    ]
    return mean_samples(mine, len(alike))


def computes(origin: str, layer: Layer) -> bool:
    """Check whether the nodes in `origin`, those of a call, include all nodes of a layer."""
    return set(layer.origin.split(",")) <= set(origin.split(","))


def algorithm_record(
    layer: Layer, way: Algorithm, settings: Settings, samples: tuple[int, ...], seed: int
) -> TuningRecord:
    return TuningRecord.of(
        RULE,
        {"tile": way.tile},
        CandidateResult(Status.OK, samples),
        task=layer.key,
        fingerprint=settings.target.fingerprint,
        threads=settings.threads,
        seed=seed,
        context=Context.MODEL,
    )
