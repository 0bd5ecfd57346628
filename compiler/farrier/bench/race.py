"""A race: engines in their own processes, outputs compared first, then rounds in turn."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.bench import engines
from farrier.bench.lane import Lane, Round
from farrier.errors import FarrierError, UsageError
from farrier.files.arrays import load_arrays, save_arrays
from farrier.frontends.onnx.model.file import Model
from farrier.options.precision import Precision
from farrier_device import engines as device_engines

Arrays = Mapping[str, npt.NDArray[Any]]
Failed = Callable[["Entrant", FarrierError], None]

_MODULES = {
    path.stem: f"{package.__name__}.{path.stem}"
    for package in (device_engines, engines)
    for path in Path(package.__path__[0]).glob("*.py")
    if path.stem != "__init__"
}
ENGINES = tuple(sorted(_MODULES))
_MOST_TURNS = 4  # times the rounds, where the machine does not become calm


@dataclasses.dataclass(frozen=True, slots=True)
class Entrant:
    """One engine with the file it loads: a .farrier artifact for `farrier`, else the ONNX file.
    `precision` is what it multiplies in; an artifact's is that of its compilation.

    `label` tells two artifacts apart, such as `farrier:untuned`; what stands before the colon is
    the engine. `python` is the interpreter of another environment, where the engine is not
    installed in this one.
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
                hint=f"see {_MODULES[self.engine]}",
            )
        if self.precision not in precisions(self.engine):
            raise UsageError(f"{self.engine} is not asked for {self.precision} here")

    @property
    def engine(self) -> str:
        return self.label.partition(":")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """One engine's latencies in milliseconds, and how far its outputs are from the reference: those
    of the first entrant in f32, or of the first where there is none."""

    label: str
    version: str
    limited: str  # how it was kept to the race's target, "" where it was not
    load_s: float  # from the file to the first outputs, its packages being imported
    median_ms: float
    best_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float  # the first entrant's median over this one's, round by round, then the median
    max_error: float  # against the reference, over the range of this one's outputs
    samples: int
    rounds_ms: tuple[float, ...]  # the median of each round
    peak_bytes: int  # of its process, Python and numpy included
    model_bytes: int  # of the files it loads
    other_cores: float  # what other processes took of the machine while this one ran


def _module(engine: str) -> ModuleType:
    return importlib.import_module(_MODULES[engine])


def missing_packages(engine: str) -> list[str]:
    """What the engine needs and this environment lacks."""
    found = _module(engine)
    return [name for name in found.PACKAGES if not _installed(name)]


def precisions(engine: str) -> tuple[Precision, ...]:
    """What the engine can be asked to multiply in."""
    found = _module(engine)
    return tuple(map(Precision, getattr(found, "PRECISIONS", (Precision.F32,))))


def peer(engine: str, model: Path, python: str, precision: Precision) -> Entrant:
    """The entrant of an engine in a precision; in f32 where it cannot be asked for another."""
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
    """Run every entrant on the same inputs, `rounds` times in turn, `round_s` seconds each.

    With a `target`, an x86-64 level, the engines are kept to its instructions; Farrier's artifacts
    are expected to be made for it.

    With `calm`, turns in which other processes took more than so many cores from an entrant are run
    again, up to four times as many in all, and the calmest are kept.

    An entrant that cannot run the model ends the race with FarrierError; with `failed` it is told
    there and left out, unless it is the first.
    """
    with (
        tempfile.TemporaryDirectory(prefix="farrier-bench-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        save_arrays(folder / "inputs.npz", inputs)
        lanes: list[tuple[Entrant, Lane, Path]] = []
        for number, entrant in enumerate(entrants):
            outputs = folder / f"outputs-{number}.npz"
            files = (entrant.model, folder / "inputs.npz", outputs)
            engine = _module(entrant.engine).__file__
            arguments = (engine, *files, threads, target, entrant.precision)
            try:
                _check_limit(entrant, target)
                lane = Lane(
                    entrant.label,
                    entrant.python,
                    [str(argument) for argument in arguments],
                    folder / f"errors-{number}.txt",
                )
                lanes.append((entrant, stack.enter_context(lane), outputs))
            except FarrierError as error:
                if failed is None or number == 0:
                    raise
                failed(entrant, error)
        _run([lane for _, lane, _ in lanes], rounds, round_s, calm)
        first = lanes[0][1]
        exact = (files for entrant, _, files in lanes if entrant.precision is Precision.F32)
        reference = next(exact, lanes[0][2])
        return [
            _figures(entrant, lane, first, _max_error(reference, outputs))
            for entrant, lane, outputs in lanes
        ]


def _check_limit(entrant: Entrant, target: str) -> None:
    limits = getattr(_module(entrant.engine), "LIMITS", {})
    if target != "host" and target not in limits:
        raise UsageError(f"{entrant.label} cannot be kept to {target}")


def _run(lanes: Sequence[Lane], rounds: int, round_s: float, calm: float | None) -> None:
    counts = [max(1, int(round_s / lane.time_one())) for lane in lanes]
    turns: list[list[Round]] = []
    quiet = 0
    most = rounds if calm is None else _MOST_TURNS * rounds
    while quiet < rounds and len(turns) < most:
        turn = _turn(lanes, counts, backwards=len(turns) % 2 == 1)
        turns.append(turn)
        quiet += calm is None or _disturbance(turn) <= calm
    if calm is not None:
        turns.sort(key=_disturbance)
    for number, lane in enumerate(lanes):
        lane.rounds = [turn[number] for turn in turns[:rounds]]


def _turn(lanes: Sequence[Lane], counts: Sequence[int], backwards: bool) -> list[Round]:
    """A round of each, in their order. Every other turn runs backwards: whoever follows the
    heaviest engine is not always the same."""
    made: dict[int, Round] = {}
    order = range(len(lanes))
    for number in reversed(order) if backwards else order:
        made[number] = lanes[number].run(counts[number])
    return [made[number] for number in order]


def _disturbance(turn: Sequence[Round]) -> float:
    return max(one.other_cores for one in turn)


def _figures(entrant: Entrant, lane: Lane, first: Lane, max_error: float) -> Figures:
    samples = sorted(sample for one in lane.rounds for sample in one.samples_ms)
    pairs = zip(first.rounds, lane.rounds, strict=True)
    return Figures(
        label=entrant.label,
        version=lane.version,
        limited=lane.limited,
        load_s=lane.load_s,
        median_ms=statistics.median(samples),
        best_ms=samples[0],
        p10_ms=samples[len(samples) // 10],
        p90_ms=samples[len(samples) * 9 // 10],
        ratio=statistics.median(a.median_ms / b.median_ms for a, b in pairs),
        max_error=max_error,
        samples=len(samples),
        rounds_ms=tuple(one.median_ms for one in lane.rounds),
        peak_bytes=lane.peak_bytes(),
        model_bytes=_file_bytes(entrant),
        other_cores=statistics.fmean(one.other_cores for one in lane.rounds),
    )


def _file_bytes(entrant: Entrant) -> int:
    """What an engine loads: one file, and those that an ONNX model names."""
    if entrant.engine == "farrier":
        return entrant.model.stat().st_size
    return sum(path.stat().st_size for _, path in Model.of_path(entrant.model).files)


def _max_error(ours: Path, theirs: Path) -> float:
    """max |difference| over the largest magnitude of their output, over all outputs."""
    worst = 0.0
    found = load_arrays(ours)
    for name, array in load_arrays(theirs).items():
        if name not in found:
            return float("inf")
        expected = array.astype(np.float64)
        scale = float(np.abs(expected).max(initial=0.0)) or 1.0
        error = np.abs(found[name].astype(np.float64) - expected).max(initial=0.0)
        worst = max(worst, float(error) / scale)
    return worst


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that would hold it
        return False
