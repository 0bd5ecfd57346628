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
TOLERANCES = {kind: max(1e-3, kind.tolerance) for kind in Precision}
FLOAT_FORM = "farrier:f32"  # The label of the model that a quantized model was made from.


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """An engine to race against, and the Python that has it."""

    engine: str
    python: str


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a race. `trials` or `budget_s` adds a tuned artifact; without either there is
    none."""

    # "host", or an x86-64 level that Farrier compiles for and the peers are limited to.
    target: str
    precision: Precision  # The precision of multiplications, for engines with that choice.
    peers: Sequence[Peer]
    rounds: int
    round_s: float
    calm: float | None  # The number of cores that other processes may use; see `race`.
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
        """The peers, and the float form if there is one."""
        return self.peers + [figure for figure in (self.float_form,) if figure is not None]

    @property
    def best_peer(self) -> Figures | None:
        return min(self.peers, key=lambda figure: figure.median_ms, default=None)

    @property
    def differing(self) -> list[str]:
        """The labels of engines whose outputs differ from the reference's by more than the
        tolerance; for a quantized model the tolerance is the error of the float form."""
        floats = self.float_form
        allowed = TOLERANCES[self.precision] if floats is None else floats.max_error
        return [figure.label for figure in self.figures if not figure.max_error <= allowed]

    @property
    def agree(self) -> bool:
        """Return whether Farrier's outputs are right, and those of a peer as well: if a single peer
        differs, its own rounding may be to blame."""
        wrong = set(self.differing)
        peers = {figure.label for figure in self.peers}
        return wrong <= peers and (not peers or wrong != peers)

    @property
    def lighter(self) -> list[str]:
        """The peers whose processes took less memory than that of Farrier's untuned artifact."""
        return [
            figure.label for figure in self.peers if figure.peak_bytes < self.ours[0].peak_bytes
        ]

    def floors_ms(self) -> tuple[float, float]:
        """Return the least time that the arithmetic takes, and the time to read the parameters
        once, in ms."""
        return self.arithmetic_s * 1e3, self.params_bytes / self.roofline.bandwidth * 1e3

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON types, with the ratios of each of Farrier's entrants over each
        peer."""
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
    """Return our latency over theirs: the median over the rounds; below 1 we are faster."""
    pairs = zip(ours.rounds_ms, theirs.rounds_ms, strict=True)
    return statistics.median(a / b for a, b in pairs)


def measure(
    workload: Workload, threads: int, settings: Settings, listener: Listener, failed: Failed
) -> Result:
    """Compile and race one model. Peers that cannot run it are passed to `failed`."""
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
        operations=sum(rival.operations * rival.calls for rival in first.manifest.kernels),
        arithmetic_s=sum(
            roofline.arithmetic_s(rival) * rival.calls for rival in first.manifest.kernels
        ),
        params_bytes=first.manifest.params_bytes,
        roofline=roofline,
        figures=tuple(figures),
    )
