"""One model measured: compiled without tuning and with, and raced against the peers."""

from __future__ import annotations

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
from farrier.runtime.artifact import load
from farrier.runtime.size import Size
from farrier.targets import parse_target
from farrier.targets.cpu.target import as_cpu

# Of the range of an output: how far engines may be from the reference.
TOLERANCES = {one: max(1e-3, one.tolerance) for one in Precision}
FLOAT_FORM = "farrier:f32"  # what a quantized model was made of


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """An engine to race against, and the Python that has it."""

    engine: str
    python: str


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """`trials` or `budget_s` adds a tuned artifact to the race; with neither there is none."""

    target: str  # host, or an x86-64 level that Farrier compiles for and the peers are kept to
    precision: Precision  # that engines multiply in, where they can be asked for it
    peers: Sequence[Peer]
    rounds: int
    round_s: float
    calm: float | None  # cores that others may take; see `race`
    trials: int | None
    budget_s: float | None
    records: RecordStore | None

    @property
    def tunes(self) -> bool:
        return self.trials is not None or self.budget_s is not None


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One model at one number of threads."""

    model: str
    threads: int
    precision: Precision
    size: Size  # of the artifact without tuning
    compile_s: dict[str, float]  # by the label of Farrier's entrant; the tuning's time included
    operations: int  # that the compiled model does; a multiply-add counts two
    arithmetic_s: float  # what these take at least
    params_bytes: int
    roofline: Roofline  # of the minute before the race
    figures: tuple[Figures, ...]

    @property
    def ours(self) -> list[Figures]:
        compiled = set(self.compile_s) - {FLOAT_FORM}
        return [one for one in self.figures if one.label in compiled]

    @property
    def float_form(self) -> Figures | None:
        return next((one for one in self.figures if one.label == FLOAT_FORM), None)

    @property
    def peers(self) -> list[Figures]:
        return [one for one in self.figures if one.label not in self.compile_s]

    @property
    def others(self) -> list[Figures]:
        """The peers, and the float form where there is one."""
        return self.peers + [one for one in (self.float_form,) if one is not None]

    @property
    def best_peer(self) -> Figures | None:
        return min(self.peers, key=lambda one: one.median_ms, default=None)

    @property
    def differing(self) -> list[str]:
        """Whose outputs are not the reference's, within the tolerance. Those of a quantized model
        may be as far from each other as from its float form's."""
        floats = self.float_form
        allowed = TOLERANCES[self.precision] if floats is None else floats.max_error
        return [one.label for one in self.figures if not one.max_error <= allowed]

    @property
    def agree(self) -> bool:
        """Whether Farrier's outputs are one, and those of a peer: a peer alone may be the one that
        rounds badly."""
        wrong = set(self.differing)
        peers = {one.label for one in self.peers}
        return wrong <= peers and (not peers or wrong != peers)

    @property
    def lighter(self) -> list[str]:
        """The peers whose processes took less memory than that of Farrier's untuned artifact."""
        return [one.label for one in self.peers if one.peak_bytes < self.ours[0].peak_bytes]

    def floors_ms(self) -> tuple[float, float]:
        """What arithmetic alone takes, and what reading the parameters once takes."""
        return self.arithmetic_s * 1e3, self.params_bytes / self.roofline.bandwidth * 1e3

    def to_json(self) -> dict[str, Any]:
        """As JSON types, ratios included: each of Farrier's entrants over each peer."""
        best = self.best_peer
        return dataclasses.asdict(self) | {
            "floors_ms": dict(zip(("arithmetic", "parameters"), self.floors_ms(), strict=True)),
            "best_peer": None if best is None else best.label,
            "agree": self.agree,
            "ratios": {
                one.label: {other.label: ratio(one, other) for other in self.others}
                for one in self.ours
            },
        }


def ratio(ours: Figures, theirs: Figures) -> float:
    """Our latency over theirs, round by round, and the median of those: below 1 we are faster."""
    pairs = zip(ours.rounds_ms, theirs.rounds_ms, strict=True)
    return statistics.median(a / b for a, b in pairs)


def measure(
    workload: Workload, threads: int, settings: Settings, listener: Listener, failed: Failed
) -> Result:
    """Compile and race one model. Peers that cannot run it are told to `failed`."""
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
            peer(one.engine, onnx, one.python, settings.precision) for one in settings.peers
        ]
        roofline = measure_roofline(as_cpu(parse_target(settings.target)), threads)
        figures = race(
            entrants,
            random_inputs(artifact.manifest.inputs),
            threads=threads,
            target=settings.target,
            rounds=settings.rounds,
            round_s=settings.round_s,
            calm=settings.calm,
            failed=failed,
        )
        first = load(entrants[0].model)
        size = Size.of(first, entrants[0].model)
    return Result(
        model=workload.name,
        threads=threads,
        precision=settings.precision,
        size=size,
        compile_s=seconds,
        operations=sum(one.operations * one.calls for one in first.manifest.kernels),
        arithmetic_s=sum(roofline.arithmetic_s(one) * one.calls for one in first.manifest.kernels),
        params_bytes=first.manifest.params_bytes,
        roofline=roofline,
        figures=tuple(figures),
    )
