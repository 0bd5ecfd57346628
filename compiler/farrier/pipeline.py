"""The way of a model: ONNX bytes → Artifact, one named step a line."""

from __future__ import annotations

from collections.abc import Mapping

from farrier.artifact.artifact import Artifact
from farrier.assemble import assemble
from farrier.choose import Choice, choose_defaults, choose_known, choose_tuned
from farrier.codegen import compile_functions
from farrier.importer import import_model
from farrier.ir.loop import Function
from farrier.measure import LocalDevice, Runner, TaskMeasurer
from farrier.options import CompileOptions
from farrier.package import algorithms_report, package, specs
from farrier.partition import extract_tasks
from farrier.passes import Settings, finish, prepare
from farrier.precision import check_precision, parse_precision
from farrier.progress import Listener, TasksFound, Verified, ignore
from farrier.records import MemoryRecords, RecordStore
from farrier.steps import Dump, Steps, StoppedError
from farrier.target import parse_target
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

    imported = steps("import", import_model, model, options.shapes)
    settings = Settings(target, threads, options.max_layer_error, precision)
    prepared = steps("prepare", prepare, imported.graph, settings)
    graph = steps("optimize", finish, prepared, settings)
    tasks, calls = steps("partition", extract_tasks, graph)
    listener(TasksFound(len(tasks), len(calls)))
    choices = defaults = steps("space", choose_defaults, tasks, calls, target, threads, listener)
    with LocalDevice() as local:
        device = local.runner if runner is None else runner
        if options.tunes:
            policy = TimingPolicy(threads=threads)
            measurer = TaskMeasurer(tasks, target, device, local.blobs, policy)
            choices = steps(
                "schedule",
                choose_tuned,
                *(defaults, measurer, records, target, threads, options, listener),
            )
        else:
            choices = steps("schedule", choose_known, defaults, records, target, threads)
        functions = steps("lower", _functions, choices)
        objects = steps("codegen", compile_functions, list(functions.values()), target)
        if options.verify:  # before the parameters are packed: the reference holds them once more
            sides = specs(imported)
            verifier = steps("reference", Verifier, model, imported, *sides, local.blobs, precision)
        linked = steps("link", assemble, graph, calls, functions, objects, target, threads)
        verified = untuned = None
        if options.verify:
            verified = steps("verify", verifier.verify, linked, device, threads)
            if choices != defaults:
                functions = _functions(defaults)
                objects = compile_functions(list(functions.values()), target)
                plain = assemble(graph, calls, functions, objects, target, threads)
                untuned = verifier.verify(plain, device, threads)
                if untuned.median_ms < verified.median_ms:
                    # Schedules that win one by one may lose together; the model decides.
                    choices, linked, verified = defaults, plain, untuned
            listener(_said(verified, untuned))
    return package(
        name,
        imported,
        graph,
        choices,
        linked,
        verified=verified,
        untuned=untuned,
        algorithms=algorithms_report(prepared, settings),
        seconds=steps.seconds,
        records=records,
        target=target,
        threads=threads,
        precision=precision,
    )


def _functions(choices: Mapping[str, Choice]) -> dict[str, Function]:
    """The scheduled kernel of every task, by the task's key."""
    return {key: choice.function() for key, choice in choices.items()}


def _said(verified: Verification, untuned: Verification | None) -> Verified:
    return Verified(
        verified.max_error,
        verified.median_ms,
        None if untuned is None else untuned.median_ms,
        verified.device,
    )
