"""Tune a model: first the algorithms of convolutions, then the schedules of kernels.

With a budget of time, schedules are searched within the model, where one run measures a candidate
of every kernel (`coordinate_descent`). With a number of trials instead, kernels are measured alone,
and the best candidates are then compared within the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from farrier.compile_pool.choose import ScheduledTask
from farrier.cost_model import CostModel
from farrier.ir.graph import Graph
from farrier.model_tuning.algorithms import (
    contenders,
    known_algorithms,
    measure_algorithms,
    plausible,
    unmeasured,
)
from farrier.model_tuning.compare import Comparison, ComparisonError
from farrier.model_tuning.coordinate_descent import CoordinateDescent
from farrier.model_tuning.in_model_selection import InModelSelection
from farrier.model_tuning.variant import Variant, make_variant
from farrier.options import CompileOptions
from farrier.passes import layers
from farrier.progress import Listener, VariantsCompared, Warned
from farrier.progress.clock import Clock
from farrier.records import RecordStore, TaskStore
from farrier.schedule_search import Measurer, TuningTask, tune

_ALGORITHMS_SHARE = 0.25  # The largest fraction of a time budget for measuring algorithms.
_ALONE_SHARE = 0.3  # The share of the remaining time for trials of kernels alone.
_VARIANT_S = 0.8  # The seconds to measure a variant.
_FINALISTS = 4  # The schedules of a kernel that run in the model, the default among them.


def tune_model(
    prepared: Graph,
    default: Variant,
    comparison: Comparison,
    measurer_of: Callable[[Mapping[str, ScheduledTask]], Measurer],
    records: RecordStore,
    options: CompileOptions,
    clock: Clock,
    listener: Listener,
    base: CostModel | None = None,
    definitions: TaskStore | None = None,
) -> Variant:
    """Return the best variant that tuning reaches within the options' trials and the remaining time
    of the clock; `prepared` is the graph from which `default` was made.

    Measurements are added to `records`, and the definitions of tuned tasks to `definitions`; `base`
    is a trained cost model.
    """
    if not default.calls:
        return default  # No kernel has elements to compute.
    with clock.phase("algorithms"):
        trials = _choose_algorithms(
            prepared, default, comparison, records, options, clock, listener
        )
        best = _with_known_algorithms(prepared, default, records)
        rivals: Sequence[Variant] = contenders(prepared, default, best, records)
    choices = {key: choice for rival in rivals for key, choice in rival.choices.items()}
    if definitions is not None:
        settings = default.settings
        each = [choice.definition(settings.target, settings.threads) for choice in choices.values()]
        definitions.define([definition for definition in each if definition is not None])
    measurer = measurer_of(choices)
    if trials is not None:
        with clock.phase("kernels alone"):
            finalists = tune(
                [TuningTask(key, c.task.name, c.space, c.calls) for key, c in choices.items()],
                default.settings.target.fingerprint,
                measurer,
                records,
                trials=trials,
                budget_s=None if clock.budget_s is None else _ALONE_SHARE * max(0.0, clock.left),
                seed=options.seed,
                threads=default.settings.threads,
                base=base,
                listener=listener,
                ended=clock.ended,
            )
        finalists = {key: several[:_FINALISTS] for key, several in finalists.items()}
        final = InModelSelection(prepared, rivals, finalists, records, options.seed)
        try:
            with clock.phase("finals"):
                best = final.run(comparison, _VARIANT_S, listener)
        except ComparisonError as error:
            listener(Warned(f"schedules stay as they were, unmeasured in the model: {error}"))
            return best
        rivals = [best]
    if clock.budget_s is None:
        return best
    with clock.phase("schedules"):
        climb = CoordinateDescent(
            prepared, comparison, measurer, records, options.seed, clock, base
        )
        return climb.run(rivals, listener)


def known_variant(prepared: Graph, default: Variant, records: RecordStore) -> Variant:
    """Return the best variant according to `records`, without measuring anything."""
    return _with_known_algorithms(prepared, default, records).with_known(records)


def _with_known_algorithms(prepared: Graph, default: Variant, records: RecordStore) -> Variant:
    best = known_algorithms(prepared, default.settings, records)
    if all(
        layer.fastest is best.get(layer.key, layer.fastest)
        for layer in layers(prepared, default.settings)
    ):
        return default
    settings = dataclasses.replace(default.settings, algorithms=best)
    return make_variant(prepared, settings, default)


def _choose_algorithms(
    prepared: Graph,
    default: Variant,
    comparison: Comparison,
    records: RecordStore,
    options: CompileOptions,
    clock: Clock,
    listener: Listener,
) -> int | None:
    """Measure algorithms of the layers whose best algorithm does not follow from the records, if
    the trials and the time suffice. Return the number of trials that remain."""
    wanted = unmeasured(prepared, default.settings, records)
    if not wanted:
        return options.trials
    needed = sum(len(plausible(layer)) for layer in wanted)
    if options.trials is not None and needed > options.trials // 2:
        return options.trials
    limit_s = _ALGORITHMS_SHARE * clock.left
    try:
        count = measure_algorithms(
            prepared, default, wanted, comparison, records, limit_s, options.seed
        )
    except ComparisonError as error:
        listener(Warned(f"algorithms are chosen without measuring: {error}"))
        return options.trials
    if not count:
        return options.trials
    best = known_algorithms(prepared, default.settings, records)
    changed = sum(best[layer.key] is not layer.fastest for layer in wanted)
    listener(VariantsCompared("algorithms", count, changed))
    return None if options.trials is None else options.trials - needed
