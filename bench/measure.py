"""Compile a model with and without tuning, and race it against other engines."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.workloads import Workload
from farrier.bench.race import Entrant, Failed, Figures, peer, race
from farrier.bench.roofline import Roofline, measure_roofline
from farrier.options import CompileOptions
from farrier.options.precision import Precision
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.progress import Listener
from farrier.records import RecordStore
from farrier.runtime.artifact import Artifact, load
from farrier.runtime.size import Size
from farrier.targets import parse_target
from farrier.targets.cpu.target import as_cpu
from farrier.targets.registry import backend_for

# Of the range of an output: how far engines may be from the reference.
TOLERANCES = {kind: max(1e-3, kind.tolerance) for kind in Precision}
FLOAT_FORM = "farrier:f32"  # The label of the model that a quantized model was made from.


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """Another engine to race against, and the Python interpreter in which it is installed."""

    engine: str
    python: str


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a race. With `trials` or `budget_s`, a tuned artifact takes part as well."""

    # "host", or an x86-64 level that Farrier compiles for and the peers are limited to; for a
    # device the target of its code.
    target: str
    precision: Precision  # The precision of multiplications, for engines with that choice.
    peers: Sequence[Peer]
    rounds: int
    round_s: float
    calm: float | None  # The number of cores that other processes may use; see `race`.
    trials: int | None
    budget_s: float | None
    records: RecordStore | None
    device: str = ""  # "cuda", or "" for the processor.

    @property
    def tunes(self) -> bool:
        return self.trials is not None or self.budget_s is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of a model with a number of threads."""

    model: str
    threads: int
    precision: Precision
    size: Size  # Of the artifact without tuning.
    compile_s: dict[str, float]  # By the label of Farrier's entrant, including the time of tuning.
    operations: int  # The operations of the compiled model; a multiply-add counts as two.
    arithmetic_s: float  # The least time of these operations.
    params_bytes: int
    roofline: Roofline  # Measured in the minute before the race.
    figures: tuple[Figures, ...]

    @property
    def ours(self) -> list[Figures]:
        compiled = set(self.compile_s) - {FLOAT_FORM}
        return [figure for figure in self.figures if figure.label in compiled]

    @property
    def float_form(self) -> Figures | None:
        return next((figure for figure in self.figures if figure.label == FLOAT_FORM), None)

    @property
    def peers(self) -> list[Figures]:
        return [figure for figure in self.figures if figure.label not in self.compile_s]

    @property
    def others(self) -> list[Figures]:
        """The latencies of the other engines and, for a quantized model, of its float form."""
        return self.peers + [figure for figure in (self.float_form,) if figure is not None]

    @property
    def best_peer(self) -> Figures | None:
        return min(self.peers, key=lambda figure: figure.median_ms, default=None)

    @property
    def differing(self) -> list[str]:
        """The labels of engines whose outputs differ from the reference by more than the tolerance,
        which for a quantized model is the error of its float form."""
        floats = self.float_form
        allowed = TOLERANCES[self.precision] if floats is None else floats.max_error
        return [figure.label for figure in self.figures if not figure.max_error <= allowed]

    @property
    def agree(self) -> bool:
        """Check whether the outputs of Farrier agree with the reference, and those of at least one
        other engine, if any took part, as well."""
        wrong = set(self.differing)
        peers = {figure.label for figure in self.peers}
        return wrong <= peers and (not peers or wrong != peers)

    @property
    def lighter(self) -> list[str]:
        """The engines whose processes used less memory than Farrier's process with the untuned
        artifact."""
        return [
            figure.label for figure in self.peers if figure.peak_bytes < self.ours[0].peak_bytes
        ]

    def floors_ms(self) -> tuple[float, float]:
        """Return lower bounds of the latency in ms: the time for the arithmetic at peak rate, and
        the time to read the parameters once."""
        return self.arithmetic_s * 1e3, self.params_bytes / self.roofline.bandwidth * 1e3

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON types, including the ratio of each of Farrier's artifacts to
        each engine."""
        best = self.best_peer
        return dataclasses.asdict(self) | {
            "floors_ms": dict(zip(("arithmetic", "parameters"), self.floors_ms(), strict=True)),
            "best_peer": None if best is None else best.label,
            "agree": self.agree,
            "ratios": {
                own.label: {rival.label: ratio(own, rival) for rival in self.others}
                for own in self.ours
            },
        }


def ratio(ours: Figures, theirs: Figures) -> float:
    """Return Farrier's latency over the other engine's, as the median over the rounds; below 1
    Farrier is faster."""
    pairs = zip(ours.rounds_ms, theirs.rounds_ms, strict=True)
    return statistics.median(a / b for a, b in pairs)


def measure(
    workload: Workload, threads: int, settings: Settings, listener: Listener, failed: Failed
) -> Result:
    """Compile and race a model. Engines that cannot run it are reported to `failed`."""
    data = workload.build()
    with tempfile.TemporaryDirectory(prefix="farrier-bench-") as name:
        folder = Path(name)
        onnx = folder / f"{workload.name}.onnx"
        onnx.write_bytes(data)
        plain = CompileOptions(
            target=settings.target,
            shapes=workload.shapes,
            threads=threads,
            verify=False,
            precision=settings.precision,
        )
        wanted = {"farrier": (data, plain)}
        if settings.tunes:
            tuned = dataclasses.replace(plain, trials=settings.trials, budget_s=settings.budget_s)
            wanted["farrier:tuned"] = (data, tuned)
        if workload.float_form is not None:
            wanted[FLOAT_FORM] = (workload.float_form(), plain)
        entrants: list[Entrant] = []
        seconds: dict[str, float] = {}
        for label, (model, options) in wanted.items():
            start = time.perf_counter()
            artifact = compile_model(
                model,
                options,
                name=workload.name,
                records=settings.records if options.tunes else None,
                listener=listener,
            )
            seconds[label] = time.perf_counter() - start
            path = artifact.save(folder / f"{len(entrants)}.farrier")
            entrants.append(Entrant(label, path, precision=settings.precision))
        entrants += [
            peer(rival.engine, onnx, rival.python, settings.precision) for rival in settings.peers
        ]
        first = load(entrants[0].model)
        roofline = _roofline(first, threads, settings)
        figures = race(
            entrants,
            random_inputs(artifact.manifest.inputs),
            threads=threads,
            target="host" if settings.device else settings.target,
            rounds=settings.rounds,
            round_s=settings.round_s,
            calm=settings.calm,
            failed=failed,
        )
        size = Size.of(first, entrants[0].model)
    return Result(
        model=workload.name,
        threads=threads,
        precision=settings.precision,
        size=size,
        compile_s=seconds,
        operations=sum(rival.operations * rival.calls for rival in first.manifest.kernels),
        arithmetic_s=sum(
            roofline.arithmetic_s(rival) * rival.calls for rival in first.manifest.kernels
        ),
        params_bytes=first.manifest.params_bytes,
        roofline=roofline,
        figures=tuple(figures),
    )


def _roofline(artifact: Artifact, threads: int, settings: Settings) -> Roofline:
    """Measure the rates of the processor, or of the device that the artifact is for."""
    if not settings.device:
        return measure_roofline(as_cpu(parse_target(settings.target)), threads)
    with contextlib.closing(artifact.session(threads)) as session:
        peaks = backend_for(artifact.manifest.architecture).measured_peaks(session.code)
    return Roofline(peaks.operations, peaks.bandwidth)
