"""Resolve the options of a compilation for the target and for this machine."""

from __future__ import annotations

import dataclasses

from farrier.errors import UsageError
from farrier.options import CompileOptions
from farrier.options.precision import Precision, parse_precision
from farrier.passes import Settings
from farrier.targets import Target, parse_target
from farrier_device.describe import cores

_ON_HOST = "host on a machine that has them"
# The targets that have the instructions of a precision.
_HAVING = {
    Precision.F32: "host",
    Precision.BF16: _ON_HOST,
    Precision.F16: _ON_HOST,
    Precision.TF32: "cuda:sm_80 or a later architecture",
}


def resolve_settings(options: CompileOptions, *, is_here: bool) -> tuple[Settings, int]:
    """Return the settings with which the model is compiled, and the number of threads that verify
    it. `is_here` means that this machine runs the code. Raises UsageError for options that the
    target or this machine does not support."""
    target = parse_target(options.target)
    precision = parse_precision(options.precision)
    _check_precision(precision, target)
    if is_here and options.needs_device:
        _check_measurable_here(target)
    threads = options.threads or target.threads
    run_threads = threads
    if is_here and not options.threads:
        run_threads = min(threads, cores())  # This machine may have fewer than the target.
        threads = run_threads if options.tunes else threads
    return Settings(target, threads, options.max_layer_error, precision), run_threads


def resolve_options(options: CompileOptions) -> CompileOptions:
    """Return the options with the number of threads for which this machine tunes, so that tuned
    code can replace untuned code. Raises UsageError for options that the target or this machine
    does not support."""
    settings, _ = resolve_settings(options, is_here=True)
    return dataclasses.replace(options, threads=settings.threads)


def _check_precision(precision: Precision, target: Target) -> None:
    """Raise UsageError if the target has no instructions for a precision."""
    needs = target.backend.precisions
    possible = [name for name, features in needs.items() if features <= target.precision_features]
    if precision.value in possible:
        return
    missing = needs.get(precision.value, frozenset()) - target.precision_features
    lacking = f"takes {', '.join(sorted(missing))}" if missing else "takes instructions"
    raise UsageError(
        f"precision {precision} {lacking}, which the target {target.cpu} does not have",
        hint=f"--precision {' or '.join(possible)}; --target {_HAVING[precision]}",
    )


def _check_measurable_here(target: Target) -> None:
    """Raise UsageError if this machine cannot run the code for some part of the target."""
    for machine in target.backend.parts(target).values():
        _check_part_here(machine)


def _check_part_here(machine: Target) -> None:
    if why := machine.backend.why_not_measured_here(machine):
        raise UsageError(
            f"code for {machine.cpu} cannot be measured or verified here: {why}",
            hint="--no-verify without --trials and --budget runs nothing; "
            "`farrier submit` measures on a device of that kind",
        )
