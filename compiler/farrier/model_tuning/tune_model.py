"""Tune a model: algorithms in the whole model, then schedules of its kernels.

Within a budget of time, schedules are searched in the model, where one run measures a candidate of
every kernel (`climb`). A number of trials is spent on kernels alone, and the best of those run in
the model.
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

_ALGORITHMS_SHARE = 0.25  # of a time budget, at most
_ALONE_SHARE = 0.3  # of what is left then, for trials of kernels alone
_VARIANT_S = 0.8  # to measure a variant for
_FINALISTS = 4  # schedules of a kernel that run in the model, the default among them


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
    """The best variant found within the options' trials and what is left of the clock; `prepared`
    is the graph that `default` was made of. What was measured goes to `records`, and what was tuned
    to `definitions`; `base` is what others have learned."""
    if not default.calls:
        return default  # all that is computed has no elements
    with clock.phase("algorithms"):
        trials = _choose_algorithms(
            prepared, default, comparison, records, options, clock, listener
        )
        best = _with_known_algorithms(prepared, default, records)
        rivals: Sequence[Variant] = contenders(prepared, default, best, records)
    choices = {key: choice for rival in rivals for key, choice in rival.choices.items()}
    if definitions is not None:
        settings = default.settings
        each = [one.definition(settings.target, settings.threads) for one in choices.values()]
        definitions.define([one for one in each if one is not None])
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
    """The best variant that `records` know, with nothing measured."""
    return _with_known_algorithms(prepared, default, records).with_known(records)


def _with_known_algorithms(prepared: Graph, default: Variant, records: RecordStore) -> Variant:
    known = known_algorithms(prepared, default.settings, records)
    if all(
        layer.fastest is known.get(layer.key, layer.fastest)
        for layer in layers(prepared, default.settings)
    ):
        return default
    settings = dataclasses.replace(default.settings, algorithms=known)
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
    """Measure the algorithms that no record decides, as far as the options leave time for it.
    Gives the trials that are left."""
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
    known = known_algorithms(prepared, default.settings, records)
    changed = sum(known[layer.key] is not layer.fastest for layer in wanted)
    listener(VariantsCompared("algorithms", count, changed))
    return None if options.trials is None else options.trials - needed
