"""Profile a compiled model: time its kernels one by one, in the order of the model.

In each round every kernel runs once on the memory that the complete model uses, so its weights are
as cold and its activations as warm as in the model. Runs of the complete model are interleaved with
these rounds. A kernel in a loop runs once as well, as in the first iteration, and its time counts
for every iteration; both branches of a condition run, and count.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import Any

from farrier.artifact.calls import CallRecord
from farrier.artifact.manifest import KernelReport
from farrier.bench import device_profile
from farrier.bench.roofline import Roofline, measure_roofline
from farrier.errors import CompilerError, UsageError
from farrier.packaging.draws import runnable_inputs, typical_states
from farrier.runtime.artifact import Artifact
from farrier.runtime.session import Session
from farrier.targets import parse_target
from farrier.targets.cpu.loaded import LoadedLibrary
from farrier.targets.cpu.target import as_cpu
from farrier.targets.registry import backend_for
from farrier_device.interpreted import InterpretedEntry
from farrier_device.native import Entry, NativeError, Pointers, pointers

_MIN_ROUNDS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class KernelProfile:
    """The times of one kernel, or of one call, by the symbol `function`. Times are medians over the
    rounds, summed over `calls`; operations and bytes are summed likewise."""

    name: str
    origin: str  # The ONNX nodes of the first call.
    calls: int
    rule: str
    source: str  # One of tuned, transferred, default.
    seconds: float
    operations: int
    nbytes: int
    floor_s: float  # The least time by the roofline, with nothing in a cache.
    function: str = ""

    @property
    def gflops(self) -> float:
        return self.operations / self.seconds / 1e9

    @property
    def gigabytes_per_s(self) -> float:
        return self.nbytes / self.seconds / 1e9

    @property
    def roofline_share(self) -> float:
        """The lower bound by the roofline divided by the time; above 1 if the data came from
        caches."""
        return self.floor_s / self.seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """The profile of all kernels of a model, the slowest first, and of its calls, in the order of
    execution.

    On a machine with other users, `model_s` exceeds the sum of the kernels: few runs of the
    complete model are undisturbed, but most runs of a kernel are, and medians select those.
    """

    model: str
    threads: int
    rounds: int
    roofline: Roofline
    model_s: float  # The median for the whole model by its entry point.
    best_s: float
    kernels: tuple[KernelProfile, ...]
    ordered: tuple[KernelProfile, ...] = ()
    emulated: bool = False  # The device is software, and its times are not those of hardware.

    @property
    def kernels_s(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)

    def to_json(self) -> dict[str, Any]:
        """Return, as JSON types, everything except the ordered calls, derived figures included."""
        derived = ("gflops", "gigabytes_per_s", "roofline_share")
        kernels = [
            dataclasses.asdict(kernel) | {name: getattr(kernel, name) for name in derived}
            for kernel in self.kernels
        ]
        fields = dataclasses.asdict(dataclasses.replace(self, ordered=()))
        del fields["ordered"]
        return fields | {"kernels": kernels, "kernels_s": self.kernels_s}


def profile(
    artifact: Artifact, *, threads: int = 0, seconds: float = 2.0, by_call: bool = False
) -> Profile:
    """Run the model for about `seconds`; return one row for each kernel or, with `by_call`, for
    each call. `threads` 0: the number for which it was tuned. Raises ArtifactError if the artifact
    contains no table of its calls, or was compiled for another machine."""
    calls = artifact.calls
    session = artifact.session(threads)
    is_native = isinstance(session.code, LoadedLibrary)
    if not isinstance(session.code, LoadedLibrary | InterpretedEntry):
        raise UsageError(
            f"{session.manifest.name} was compiled for {session.manifest.machine}, whose kernels "
            "are not timed one by one",
            hint="`farrier bench` times the whole model",
        )
    roofline = _roofline_here(artifact, session.threads) if is_native else Roofline(0.0, 0.0)
    session.load_state(typical_states(artifact))
    # The rounds read and write these arrays in place.
    inputs = runnable_inputs(artifact)
    outputs = session.run(inputs)
    whole, each = _rounds(session, calls, seconds)
    del inputs, outputs
    if not is_native:
        peaks = backend_for(artifact.manifest.architecture).measured_peaks(session.code)
        roofline = Roofline(peaks.operations, peaks.bandwidth)
    reports = {report.task: report for report in artifact.manifest.kernels}
    rows = [
        _row(call, reports[call.task], statistics.median(samples), roofline)
        for call, samples in zip(calls, each, strict=True)
    ]
    ordered = tuple(rows)
    if not by_call:
        groups: dict[str, list[KernelProfile]] = {}
        for call, row in zip(calls, rows, strict=True):
            groups.setdefault(call.task, []).append(row)
        rows = [_joined(group) for group in groups.values()]
    rows.sort(key=lambda row: -row.seconds)
    return Profile(
        model=artifact.manifest.name,
        threads=session.threads,
        rounds=len(whole),
        roofline=roofline,
        model_s=statistics.median(whole),
        best_s=min(whole),
        kernels=tuple(rows),
        ordered=ordered,
        emulated=isinstance(session.code, InterpretedEntry) and session.code.is_emulated,
    )


def _roofline_here(artifact: Artifact, threads: int) -> Roofline:
    of_level = as_cpu(parse_target(artifact.manifest.machine))
    return measure_roofline(
        dataclasses.replace(of_level, features=artifact.manifest.features), threads
    )


def _rounds(
    session: Session, calls: Sequence[CallRecord], seconds: float
) -> tuple[list[float], list[list[float]]]:
    """Run the model and its calls in rounds, for about `seconds`. Return the seconds of the
    complete model in each round, and for each call its seconds in each round."""
    bases = session.addresses
    code = session.code
    if isinstance(code, InterpretedEntry):
        return device_profile.rounds(code, bases, calls, seconds, _MIN_ROUNDS)
    assert isinstance(code, LoadedLibrary)
    model = (code.entry, pointers(bases))
    kernels = [
        (
            code.library.entry(call.function),
            pointers([bases[a.position] + a.offset for a in call.arguments]),
        )
        for call in calls
    ]
    whole: list[float] = []
    each: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while len(whole) < _MIN_ROUNDS or time.perf_counter() < end:
        whole.append(_timed(code, *model))
        for samples, kernel in zip(each, kernels, strict=True):
            samples.append(_timed(code, *kernel))
    return whole, each


def _timed(code: LoadedLibrary, entry: Entry, args: Pointers) -> float:
    try:
        (ns,) = code.library.time(entry, args, code.pool, 1)
    except NativeError as error:
        raise CompilerError(f"a kernel {error}") from error
    return ns / 1e9


def _row(
    call: CallRecord, report: KernelReport, seconds: float, roofline: Roofline
) -> KernelProfile:
    return KernelProfile(
        name=report.name,
        origin=call.origin,
        calls=call.runs,
        rule=report.rule,
        source=report.source,
        seconds=seconds * call.runs,
        operations=report.operations * call.runs,
        nbytes=call.nbytes * call.runs,
        floor_s=_floor_s(roofline, report, call) * call.runs,
        function=call.function,
    )


def _floor_s(roofline: Roofline, report: KernelReport, call: CallRecord) -> float:
    """Return a lower bound of the time of a call in seconds, by the roofline. Return 0 if the
    roofline does not apply, because the call does not run on the measured machine."""
    is_known = roofline.operations and roofline.bandwidth and not report.reason
    return roofline.floor_s(report, call.nbytes) if is_known else 0.0


def _joined(rows: Sequence[KernelProfile]) -> KernelProfile:
    """Return one row for a kernel, from the rows of its calls: their numbers are added."""
    return dataclasses.replace(
        rows[0],
        calls=sum(row.calls for row in rows),
        seconds=sum(row.seconds for row in rows),
        operations=sum(row.operations for row in rows),
        nbytes=sum(row.nbytes for row in rows),
        floor_s=sum(row.floor_s for row in rows),
    )
