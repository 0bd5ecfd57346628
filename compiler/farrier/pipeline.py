"""The way of a model: ONNX bytes → Artifact, one named step a line."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

from farrier.errors import UsageError
from farrier.importer import ImportedModel, import_model
from farrier.ir.control import failures
from farrier.ir.graph import Graph
from farrier.ir.loop import Function
from farrier.kernels import Helpers, helpers_for
from farrier.kernels.choose import Choice, choose_defaults
from farrier.measure import Blobs, LocalDevice, Runner, TaskMeasurer
from farrier.model.bus_errors import reading
from farrier.model.file import Model, model_of
from farrier.options import CompileOptions
from farrier.options.precision import Precision, parse_precision
from farrier.partition import extract_tasks
from farrier.passes import Settings, finish, prepare
from farrier.progress import (
    Listener,
    SizesSettled,
    TasksFound,
    TimeSpent,
    Verified,
    Warned,
    ignore,
)
from farrier.progress.clock import Clock
from farrier.progress.steps import Dump, Steps, StoppedError
from farrier.records import MemoryRecords, RecordStore
from farrier.release.package import package, specs
from farrier.release.verify import Verification, Verifier
from farrier.runtime.artifact import Artifact
from farrier.targets import Plan, Target, backend_of, parse_target, why_not_here
from farrier.tuning.algorithms import algorithms_report
from farrier.tuning.compare import Comparison, Race, compared
from farrier.tuning.hot import (
    check_hot,
    hot_sizes,
    shapes_at,
    with_shared_kernels,
    with_shared_panels,
)
from farrier.tuning.tune_model import known_variant, tune_model
from farrier.tuning.variant import Variant
from farrier_device.describe import cores
from farrier_device.measurement import TimingPolicy

__all__ = ["Dump", "StoppedError", "compile_model"]

_NOWHERE = Dump()


def compile_model(
    model: Model | bytes,
    options: CompileOptions,
    *,
    name: str = "",
    runner: Runner | None = None,
    records: RecordStore | None = None,
    listener: Listener = ignore,
    dump: Dump = _NOWHERE,
) -> Artifact:
    """Compiles one ONNX model, called `name` where it has a better one than its own.

    `runner` measures on the device that the target names (None: in a child process here); `records`
    are read for schedules that are known and extended with what is measured. Raises FarrierError;
    StoppedError after the step that `dump.until` names.
    """
    model = model_of(model)
    steps = Steps(listener, dump)
    target = parse_target(options.target)
    backend = backend_of(target)
    precision = parse_precision(options.precision)
    _check_precision(precision, target)
    if runner is None and options.needs_device:
        _check_measurable_here(target)
    threads = options.threads or target.cores
    measured = threads  # on the device: here there may be fewer cores than the target has
    if runner is None and not options.threads:
        measured = min(threads, cores())
        threads = measured if options.tunes else threads
    records = MemoryRecords() if records is None else records

    with reading(model):
        shapes = options.shapes, options.hot, options.typical
        imported = steps("import", import_model, model, *shapes)
    if imported.dims:
        listener(_settled(imported))
    warned = _warn(imported.graph, (), listener)
    settings = Settings(target, threads, options.max_layer_error, precision)
    hot = hot_sizes(imported.dims, options.hot)
    check_hot(imported, options.hot, hot)
    count = helpers_for(len(imported.graph.nodes))
    with reading(model), LocalDevice() as local, Helpers(count, target, threads) as helpers:
        device = local.runner if runner is None else runner
        making = _Making(steps, settings, options, device, local.blobs, records, helpers, listener)
        made = making.made(imported.graph, tunes=options.tunes and not hot)
        if hot and not options.tunes:  # nothing is measured meanwhile
            helpers.begin(made.variant.choices)
        hot_made: list[_Made] = []
        for number, sizes in enumerate(hot):
            steps.part = f"-hot{number}"
            one = steps("import", import_model, model, shapes_at(imported, sizes))
            warned = _warn(one.graph, warned, listener)
            own = making.made(one.graph, options.tunes, share=len(hot))
            variant = with_shared_panels(own.variant, made.variant)
            variant = with_shared_kernels(variant, made.variant, sizes)
            hot_made.append(dataclasses.replace(own, variant=variant))
        steps.part = ""
        shown = hot_made[0] if hot else made  # what is said of a model with hot sizes
        choices = {key: c for each in (made, *hot_made) for key, c in each.variant.choices.items()}
        if dump.wants("lower"):
            steps("lower", _functions, choices)
        kernels = steps("codegen", helpers.compile, choices)
        if options.verify:  # before the parameters are packed: the reference holds them once more
            sides = specs(imported)
            verifier = steps("reference", Verifier, model, imported, *sides, local.blobs, precision)
        planned = backend.plan(made.variant.program, kernels.interfaces, target, threads)
        hot_planned: dict[tuple[int, ...], Plan] = {}
        for sizes, other in zip(hot, hot_made, strict=True):
            beside = next(reversed(hot_planned.values()), planned)
            instead = backend.plan(
                other.variant.program, kernels.interfaces, target, threads, beside
            )
            # One in which a size decides what others leave to the data would speak of other sizes.
            if instead.stands_for(planned):
                hot_planned[planned.given(sizes)] = instead
        linked = steps("link", backend.assemble, planned, kernels.objects, target, hot_planned)
        verified = None
        if options.verify:
            verified = steps("verify", verifier.verify, linked, device, measured)
            listener(_said(verified, shown.race))
    return package(
        name or model.name,
        imported,
        [made.variant, *(one.variant for one in hot_made)],
        linked,
        verified=verified,
        race=shown.race,
        tuning=shown.tuning,
        algorithms=algorithms_report(shown.prepared, shown.variant.settings, records),
        seconds=steps.seconds,
        records=records,
    )


@dataclasses.dataclass(frozen=True)
class _Made:
    """A graph as kernels with schedules; `race` is between defaults and what tuning found."""

    prepared: Graph
    variant: Variant
    race: Race | None
    tuning: Mapping[str, Any] | None  # what the time to tune was spent on


@dataclasses.dataclass(frozen=True)
class _Making:
    """From an imported graph to the best variant of it: with dims as they are, or at hot sizes."""

    steps: Steps
    settings: Settings
    options: CompileOptions
    device: Runner
    blobs: Blobs
    records: RecordStore
    helpers: Helpers
    listener: Listener

    def made(self, imported: Graph, tunes: bool, share: int = 1) -> _Made:
        """Optimizes, partitions and schedules a graph; `share` graphs share the time to tune."""
        steps, settings, records, listener = self.steps, self.settings, self.records, self.listener
        target, threads = settings.target, settings.threads
        prepared = steps("prepare", prepare, imported, settings)
        graph = steps("optimize", finish, prepared, settings)
        tasks, program = steps("partition", extract_tasks, graph)
        listener(TasksFound(len(tasks), len(program.calls)))
        choices = steps("space", choose_defaults, tasks, program.calls, target, threads, listener)
        default = Variant(settings, graph, program, choices)
        options = self.options.shared(share)
        clock = Clock(options.budget_s if tunes else None)
        comparison = Comparison(target, threads, self.device, self.blobs, self.helpers, clock)
        if tunes:
            measurer = functools.partial(
                TaskMeasurer,
                target=target,
                runner=self.device,
                blobs=self.blobs,
                policy=TimingPolicy(threads=threads),
                helpers=self.helpers,
                clock=clock,
            )
            variant = steps(
                "schedule",
                tune_model,
                *(prepared, default, comparison, measurer, records, options, clock, listener),
            )
        else:
            variant = steps("schedule", known_variant, prepared, default, records)
        race = None
        if (tunes or self.options.verify) and not variant.is_same_code(default):
            # What wins part by part may lose as a whole; the model decides.
            with clock.phase("race"):
                race = steps("compare", compared, comparison, default, variant, listener)
            variant = variant if race is not None and race.is_won else default
        if not tunes:
            return _Made(prepared, variant, race, None)
        listener(TimeSpent(clock.budget_s, clock.phases, clock.works))
        return _Made(prepared, variant, race, clock.report())


def _check_precision(precision: Precision, target: Target) -> None:
    """Raises UsageError where the target has no instruction for a precision."""
    taken = backend_of(target).precisions
    possible = [name for name, needs in taken.items() if needs <= target.required_features]
    if precision.value in possible:
        return
    missing = taken.get(precision.value, frozenset()) - target.required_features
    what = f"takes {', '.join(sorted(missing))}" if missing else "takes instructions"
    raise UsageError(
        f"precision {precision} {what}, which the target {target.cpu} does not have",
        hint=f"--precision {' or '.join(possible)}; --target host on a machine that has them",
    )


def _check_measurable_here(target: Target) -> None:
    """Raises UsageError where this machine cannot run code for the target."""
    if why := why_not_here(target.triple, target.cpu, target.features):
        raise UsageError(
            f"code for {target.cpu} cannot be measured or verified here: {why}",
            hint="--no-verify without --trials and --budget runs nothing; "
            "`farrier submit` measures on a device of that kind",
        )


def _warn(graph: Graph, before: Collection[str], listener: Listener) -> set[str]:
    """Says which branches are not compiled, but for what was said `before`; gives all that is
    said."""
    said = dict.fromkeys(
        f"a run that takes one branch of node {node.origin!r} will end with an error: "
        f"{node.attr('reason')}"
        for node in failures(graph)
    )
    for message in said:
        if message not in before:
            listener(Warned(message))
    return {*before, *said}


def _functions(choices: Mapping[str, Choice]) -> dict[str, Function]:
    """The scheduled kernel of every task, by the task's key."""
    return {key: choice.function() for key, choice in choices.items()}


def _settled(imported: ImportedModel) -> SizesSettled:
    return SizesSettled(list(map(str, imported.dims)), list(map(str, imported.preconditions)))


def _said(verified: Verification, race: Race | None) -> Verified:
    return Verified(
        verified.max_error,
        verified.median_ms,
        None if race is None else race.default_ms,
        verified.device,
    )
