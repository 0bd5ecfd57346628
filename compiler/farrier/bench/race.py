"""A race: engines in their own processes, whose outputs are compared first, and which are then
timed in alternation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from farrier.bench.lane import Arrays, EngineProcess, Round
from farrier.errors import FarrierError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.options.precision import Precision
from farrier_device.baseline import engines
from farrier_device.baseline.engines import Engine
from farrier_device.baseline.error import max_error
from farrier_device.baseline.lane import Order
from farrier_device.baseline.limit import Limit
from farrier_device.baseline.turns import ratio, runs_of_a_round, turns

Failed = Callable[["Entrant", FarrierError], None]

ENGINES: Mapping[str, Engine] = {
    "farrier": Engine(
        Path(__file__).with_name("session_engine.py"),
        "farrier",
        ("farrier.runtime.artifact", "farrier.runtime.session"),
        precisions=("f32", "bf16", "f16"),
        # An artifact is compiled for its target and cannot be limited.
        limits={level: Limit() for level in ("x86-64-v2", "x86-64-v3", "x86-64-v4")},
    ),
    **engines.ENGINES,
}
_MOST_TURNS = 4  # The most turns, as a multiple of the rounds, if the machine does not become calm.


@dataclasses.dataclass(frozen=True, slots=True)
class Entrant:
    """One engine with the file that it loads: a .farrier artifact for `farrier`, else the ONNX
    file.

    `precision` is the type in which it multiplies; an artifact's is that of its compilation.
    `label` distinguishes two artifacts, as in `farrier:untuned`; the part before the colon is the
    engine. `python` is the interpreter of another environment, if the engine is not installed in
    this one.
    """

    label: str
    model: Path
    python: str = sys.executable
    precision: Precision = Precision.F32

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(
                f"unknown engine {self.engine!r}", hint=f"engines: {', '.join(ENGINES)}"
            )
        missing = self.python == sys.executable and missing_packages(self.engine)
        if missing:
            raise UsageError(
                f"{self.engine} is not installed: {', '.join(missing)}",
                hint=f"see {ENGINES[self.engine].adapter}",
            )
        if self.precision not in precisions(self.engine):
            raise UsageError(f"{self.engine} is not asked for {self.precision} here")

    @property
    def engine(self) -> str:
        return self.label.partition(":")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """The latencies of one engine in milliseconds, and the error of its outputs relative to those
    of the reference. The reference is the first entrant in f32 or, if no entrant computes in f32,
    the first entrant."""

    label: str
    version: str
    limited: str  # The way in which it was limited to the race's target, "" if it was not.
    load_s: float  # From the file to the first outputs, after its packages are imported.
    median_ms: float
    best_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float  # The first entrant's median over this one's, round by round, then the median.
    max_error: float  # Against the reference, over the range of its outputs.
    samples: int
    rounds_ms: tuple[float, ...]  # The median of each round.
    peak_bytes: int  # The peak of its process, with Python and numpy.
    model_bytes: int  # The size of the files it loads.
    other_cores: float  # The use of the machine by other processes while this one ran, in cores.


def missing_packages(engine: str) -> list[str]:
    """Return the Python packages that the engine needs and that are not installed in this
    environment."""
    return ENGINES[engine].missing()


def precisions(engine: str) -> tuple[Precision, ...]:
    """Return the precisions in which the engine can multiply matrices."""
    return tuple(map(Precision, ENGINES[engine].precisions))


def peer(engine: str, model: Path, python: str, precision: Precision) -> Entrant:
    """Return the entrant for an engine with a precision. If the engine does not support the
    precision, the entrant computes in f32."""
    if engine in ENGINES and precision in precisions(engine) and precision is not Precision.F32:
        return Entrant(f"{engine}:{precision}", model, python, precision)
    return Entrant(engine, model, python)


def race(
    entrants: Sequence[Entrant],
    inputs: Arrays,
    *,
    threads: int,
    target: str = "host",
    rounds: int = 15,
    round_s: float = 0.2,
    calm: float | None = None,
    failed: Failed | None = None,
) -> list[Figures]:
    """Run every entrant on the same inputs in `rounds` alternating rounds of `round_s` seconds
    each.

    With a `target`, an x86-64 level, the engines are limited to its instructions; Farrier's
    artifacts are expected to be compiled for it.

    With `calm`, rounds in which other processes took more than `calm` cores from an entrant are
    repeated, up to four times the rounds in total, and the least disturbed rounds count.

    An entrant that cannot run the model ends the race with FarrierError; with `failed`, that
    function is called with the error and the entrant is left out, unless it is the first.
    """
    with (
        tempfile.TemporaryDirectory(prefix="farrier-bench-") as name,
        contextlib.ExitStack() as stack,
    ):
        lanes: list[tuple[Entrant, EngineProcess]] = []
        for number, entrant in enumerate(entrants):
            folder = Path(name) / str(number)
            folder.mkdir()
            try:
                order = _order(entrant, threads, target, folder)
                process = EngineProcess(entrant.label, entrant.python, order, inputs, folder)
                lanes.append((entrant, stack.enter_context(process)))
            except FarrierError as error:
                if failed is None or number == 0:
                    raise
                failed(entrant, error)
        raced = run_turns([process for _, process in lanes], rounds, round_s, calm)
        exact = (process for entrant, process in lanes if entrant.precision is Precision.F32)
        reference = next(exact, lanes[0][1]).outputs
        return [
            _figures(entrant, process, own, raced[0], max_error(process.outputs, reference))
            for (entrant, process), own in zip(lanes, raced, strict=True)
        ]


def _order(entrant: Entrant, threads: int, target: str, folder: Path) -> Order:
    """Return the order that is sent to an entrant's process. Raises UsageError if the engine cannot
    be limited to the target's instructions."""
    engine = ENGINES[entrant.engine]
    if target != "host" and target not in engine.limits:
        raise UsageError(f"{entrant.label} cannot be kept to {target}")
    return Order(
        engine,
        entrant.model,
        threads,
        inputs=(),
        precision=entrant.precision,
        limit=None if target == "host" else (engine.limits[target], folder / target),
    )


class Racer(Protocol):
    """The interface of an entrant in a race, which runs rounds."""

    def run(self, count: int) -> Round: ...


def run_turns(
    racers: Sequence[Racer], rounds: int, round_s: float, calm: float | None
) -> list[list[Round]]:
    """Run `rounds` alternations of the racers' rounds, and return the rounds of each racer. With
    `calm`, alternations in which other processes took more than `calm` cores are repeated, and the
    least disturbed ones are returned."""
    race = turns([_rounds_of(racer, round_s) for racer in racers])
    raced: list[list[Round]] = []
    quiet = 0
    most = rounds if calm is None else _MOST_TURNS * rounds
    while quiet < rounds and len(raced) < most:
        raced.append(next(race))
        quiet += calm is None or _disturbance(raced[-1]) <= calm
    if calm is not None:
        raced.sort(key=_disturbance)
    return [list(own) for own in zip(*raced[:rounds], strict=True)]


def _rounds_of(racer: Racer, round_s: float) -> Callable[[], Round]:
    count = runs_of_a_round(lambda runs: racer.run(runs).median_ms / 1e3, round_s)
    return lambda: racer.run(count)


def _disturbance(turn: Sequence[Round]) -> float:
    return max(own.other_cores for own in turn)


def _figures(
    entrant: Entrant,
    process: EngineProcess,
    rounds: Sequence[Round],
    first: Sequence[Round],
    error: float | None,
) -> Figures:
    samples = sorted(itertools.chain.from_iterable(own.samples_ms for own in rounds))
    return Figures(
        label=entrant.label,
        version=process.loaded.version,
        limited=process.loaded.limited,
        load_s=process.loaded.load_s,
        median_ms=statistics.median(samples),
        best_ms=samples[0],
        p10_ms=samples[len(samples) // 10],
        p90_ms=samples[len(samples) * 9 // 10],
        ratio=ratio([own.samples_ms for own in first], [own.samples_ms for own in rounds]),
        max_error=error or 0.0,
        samples=len(samples),
        rounds_ms=tuple(own.median_ms for own in rounds),
        peak_bytes=process.peak_bytes(),
        model_bytes=_file_bytes(entrant),
        other_cores=statistics.fmean(own.other_cores for own in rounds),
    )


def _file_bytes(entrant: Entrant) -> int:
    """Return the size in bytes of an entrant's model, including the data files of an ONNX model."""
    if entrant.engine == "farrier":
        return entrant.model.stat().st_size
    return sum(path.stat().st_size for _, path in Model.of_path(entrant.model).files)
