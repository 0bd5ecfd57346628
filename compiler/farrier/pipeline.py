"""The way of a model: ONNX bytes → Artifact, one named step a line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from farrier.artifact.artifact import Artifact
from farrier.assemble import assemble, plan
from farrier.choose import Choice, choose_defaults
from farrier.codegen import compile_functions
from farrier.importer import import_model
from farrier.ir.loop import Function
from farrier.measure import Blobs, LocalDevice, Runner, TaskMeasurer
from farrier.options import CompileOptions
from farrier.package import package, specs
from farrier.partition import Task, extract_tasks
from farrier.passes import Settings, finish, prepare
from farrier.precision import check_precision, parse_precision
from farrier.progress import Listener, TasksFound, Verified, ignore
from farrier.records import MemoryRecords, RecordStore
from farrier.steps import Dump, Steps, StoppedError
from farrier.target import Target, parse_target
from farrier.tuning.algorithms import algorithms_report
from farrier.tuning.compare import Comparison, Race, compared
from farrier.tuning.tune_model import known_variant, tune_model
from farrier.tuning.variant import Variant
from farrier.verify import Verification, Verifier
from farrier_device.measurement import TimingPolicy

__all__ = ["Dump", "StoppedError", "compile_model"]

_NOWHERE = Dump()


def compile_model(
    model: bytes,
    options: CompileOptions,
    *,
    name: str = "model",
    runner: Runner | None = None,
    records: RecordStore | None = None,
    listener: Listener = ignore,
    dump: Dump = _NOWHERE,
) -> Artifact:
    """Compiles one ONNX model.

    `runner` measures on the device that the target names (None: in a child process here); `records`
    are read for schedules that are known and extended with what is measured. Raises FarrierError;
    StoppedError after the step that `dump.until` names.
    """
    steps = Steps(listener, dump)
    target = parse_target(options.target)
    precision = parse_precision(options.precision)
    check_precision(precision, target)
    threads = options.threads or target.cores
    records = MemoryRecords() if records is None else records

    imported = steps("import", import_model, model, options.shapes, options.hot)
    settings = Settings(target, threads, options.max_layer_error, precision)
    prepared = steps("prepare", prepare, imported.graph, settings)
    graph = steps("optimize", finish, prepared, settings)
    tasks, program = steps("partition", extract_tasks, graph)
    listener(TasksFound(len(tasks), len(program.calls)))
    choices = steps("space", choose_defaults, tasks, program.calls, target, threads, listener)
    variant = default = Variant(settings, graph, program, choices)
    with LocalDevice() as local:
        device = local.runner if runner is None else runner
        comparison = Comparison(target, threads, device, local.blobs)
        if options.tunes:
            measurer = _measurer(target, device, local.blobs, threads)
            variant = steps(
                "schedule",
                tune_model,
                *(prepared, default, comparison, measurer, records, options, listener),
            )
        else:
            variant = steps("schedule", known_variant, prepared, default, records)
        race = None
        if (options.tunes or options.verify) and not variant.is_same_code(default):
            # What wins part by part may lose as a whole; the model decides.
            race = steps("compare", compared, comparison, default, variant, listener)
            variant = variant if race is not None and race.is_won else default
        functions = steps("lower", _functions, variant.choices)
        objects = steps("codegen", compile_functions, list(functions.values()), target)
        if options.verify:  # before the parameters are packed: the reference holds them once more
            sides = specs(imported)
            verifier = steps("reference", Verifier, model, imported, *sides, local.blobs, precision)
        planned = plan(variant.program, functions, target, threads)
        linked = steps("link", assemble, planned, objects, target)
        verified = None
        if options.verify:
            verified = steps("verify", verifier.verify, linked, device, threads)
            listener(_said(verified, race))
    return package(
        name,
        imported,
        variant,
        linked,
        verified=verified,
        race=race,
        algorithms=algorithms_report(prepared, variant.settings, records),
        seconds=steps.seconds,
        records=records,
    )


def _measurer(
    target: Target, runner: Runner, blobs: Blobs, threads: int
) -> Callable[[Mapping[str, Task]], TaskMeasurer]:
    """Makes what measures tasks by themselves on the runner's device."""
    policy = TimingPolicy(threads=threads)
    return functools.partial(TaskMeasurer, target=target, runner=runner, blobs=blobs, policy=policy)


def _functions(choices: Mapping[str, Choice]) -> dict[str, Function]:
    """The scheduled kernel of every task, by the task's key."""
    return {key: choice.function() for key, choice in choices.items()}


def _said(verified: Verification, race: Race | None) -> Verified:
    return Verified(
        verified.max_error,
        verified.median_ms,
        None if race is None else race.default_ms,
        verified.device,
    )
