"""Which algorithm computes each layer, by measuring: in the whole model, within the error allowed.

A Winograd convolution trades arithmetic for weights, so how it does depends on what else the model
streams through the caches: alone, F(4,3) at 14x14 beats F(2,3); in ResNet it may lose. So a variant
of the model is made for each algorithm, all are measured in turns, and layers of one shape take
what was fastest for them. What was found is a record: `task` is the layer's key, `rule` is
"algorithm", and the one decision is the tile (0: the direct sum).
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
_VARIANT_S = (0.8, 2.0)  # to measure a variant for: usually, where there is time for more
_MARGIN = 0.03  # what an algorithm must win over the one that arithmetic says by
_CLOSE = 1.1  # times the seconds of the best measured: what may win with another schedule
_PLAUSIBLE = 1.6  # times the seconds of the best by arithmetic: what is slower is not measured


def known_seconds(layer: Layer, settings: Settings, records: RecordStore) -> dict[Algorithm, float]:
    """What the records say of a layer's algorithms, those that are not allowed included: the latest
    of each, as those were measured side by side."""
    fingerprint = settings.target.fingerprint
    known = usable(records, layer.key, fingerprint, settings.threads, RULE)
    ran = latest(record for record in known if record.samples_ns)
    seconds = {record.knobs.get("tile", -1): record.seconds for record in ran.values()}
    return {way: seconds[way.tile] for way in Algorithm if way.tile in seconds}


def known_algorithms(
    prepared: Graph, settings: Settings, records: RecordStore
) -> dict[str, Algorithm]:
    """The best allowed algorithm of each layer that was measured, by the layer's key; the one that
    arithmetic says where no other beats it clearly."""
    found = {}
    for layer in layers(prepared, settings):
        seconds = known_seconds(layer, settings, records)
        ran = {way: s for way, s in seconds.items() if way in layer.allowed}
        if layer.fastest in ran:
            best = min(ran, key=ran.__getitem__)
            is_clear = ran[best] < (1 - _MARGIN) * ran[layer.fastest]
            found[layer.key] = best if is_clear else layer.fastest
    return found


def algorithms_report(prepared: Graph, settings: Settings, records: RecordStore) -> dict[str, Any]:
    """The error that a layer's algorithm may have, and how each convolution with a choice is
    computed. `error` is what a layer stays below, as max |error| over max |result|; `measured_us`
    are means over layers of one shape, in a model."""
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
    """The allowed algorithms that may turn out best."""
    bar = _PLAUSIBLE * min(map(layer.seconds, layer.allowed))
    return [way for way in layer.allowed if layer.seconds(way) <= bar or way is layer.fastest]


def contenders(
    prepared: Graph, default: Variant, chosen_one: Variant, records: RecordStore
) -> list[Variant]:
    """The variant with the best known algorithms, and those with what came close to them: with
    schedules of their own they may turn out best."""
    settings = default.settings
    known = known_algorithms(prepared, settings, records)
    found = [chosen_one]
    for way in Algorithm:
        algorithms = dict(known)
        for layer in layers(prepared, settings):
            seconds = known_seconds(layer, settings, records)
            if layer.key not in known or way not in layer.allowed or way not in seconds:
                continue
            if seconds[way] < _CLOSE * seconds[known[layer.key]]:
                algorithms[layer.key] = way
        if algorithms != known:
            other = dataclasses.replace(settings, algorithms=algorithms)
            found.append(make_variant(prepared, other, default))
    return found


def unmeasured(prepared: Graph, settings: Settings, records: RecordStore) -> list[Layer]:
    """One layer of each shape for which there is a choice that no record decides."""
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
    """Measure the plausible algorithms of `wanted` layers in the model, within `limit_s`, into
    `records`; give the number of variants, 0 where that is too short. One that does not run says
    nothing of its algorithms. Raises ComparisonError."""
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
    """The default, and for each algorithm the model with `wanted` layers computed so."""
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
    """How long to measure each variant for, compiled and measured within `limit_s`; None where
    they cannot be."""
    comparison.compile(variants[0].choices.values())  # tells how long the others take
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
    """Nanoseconds of a layer of one shape, the mean over `alike` ones."""
    mine = [one.samples_ns for layer in alike for one in calls if computes(one.call.origin, layer)]
    return mean_samples(mine, len(alike))


def computes(origin: str, layer: Layer) -> bool:
    """Whether a call from these nodes is, among others, from the nodes of a layer."""
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
