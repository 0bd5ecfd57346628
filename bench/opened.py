"""The cost of open dims: artifacts of models as exporters write them, against artifacts for a
single size.

    python -m bench.opened [MODEL …] [--threads 2] [--rounds 5] [--round-s 0.05] [--json FILE]

A MODEL is a name of `python -m bench`; without one, all models are measured. Each is compiled with
batch and sizes open, with no option but the number of threads, and once for its typical sizes only.
Both artifacts race at the typical sizes. At other sizes, the open artifact races an artifact for
just that size:

    batch   the model with its batch alone open, at other batches
    sizes   the model with all open, at other heights, widths and lengths, batch 1

`compile` is the compile time of the open artifact over that of the static one, as medians of three
in turns. The last lines are geometric means over the models.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bench.calls import Arrays, Input, arrays, typical_values
from bench.models.writer import Writer
from bench.workloads import NAMES, workload
from farrier.artifact.manifest import Manifest
from farrier.bench.race import Entrant, race
from farrier.errors import FarrierError, InputMismatchError, UsageError
from farrier.ir.dim import evaluate
from farrier.options import CompileOptions
from farrier.options.shapes import GivenShape, NamedDim
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact, load
from farrier_device import describe

Shapes = Mapping[str, tuple[int, ...]]
Sizes = Mapping[str, int]  # of symbols
_Drawn = Callable[[Manifest], Iterator[Sizes]]

_COMPILATIONS = 3  # Compilations of each, in turns.
_BATCHES = (2, 5)
_SHARES = (0.75, 1.25)  # Shares of the typical height, width or length.
_MOST = {"typical": 1.05, "batch": 1.3, "sizes": 1.8, "compile": 1.6}


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    threads: int
    rounds: int
    round_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class SizeResult:
    """The open artifact at one size: its latency, and the ratio to a static artifact's latency."""

    kind: str  # One of typical, batch and sizes.
    shapes: Shapes
    median_ms: float
    ratio: float


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The results of a model; `places` are the results at each size."""

    model: str
    compile_s: float
    static_compile_s: float
    places: tuple[SizeResult, ...]

    def ratio(self, kind: str) -> float | None:
        """Return the geometric mean of the latency ratios at the sizes of a kind, or None for a
        kind without sizes. The kind `compile` stands for the ratio of compile times."""
        if kind == "compile":
            return self.compile_s / self.static_compile_s
        ratios = [place.ratio for place in self.places if place.kind == kind]
        return statistics.geometric_mean(ratios) if ratios else None


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A geometric mean over `models` models, with the limit that it must not exceed."""

    kind: str
    value: float
    most: float
    models: int

    @property
    def is_met(self) -> bool:
        return self.value <= self.most


def lines(results: Sequence[Result]) -> list[Line]:
    """Return the geometric means that have limits."""
    limits: list[Line] = []
    for kind, most in _MOST.items():
        ratios = [ratio for result in results if (ratio := result.ratio(kind)) is not None]
        if ratios:
            limits.append(Line(kind, statistics.geometric_mean(ratios), most, len(ratios)))
    return limits


def measure(name: str, model: bytes, settings: Settings) -> Result:
    """Compile a model with open dims, and race it against static artifacts at several sizes. Raises
    FarrierError if it cannot be compiled."""
    with tempfile.TemporaryDirectory(prefix="farrier-opened-") as folder:
        bench = _Bench(name, model, settings, Path(folder))
        opened, seconds = bench.timed({})
        manifest = opened.manifest
        usual = {dim.symbol: dim.typical for dim in manifest.dims}
        typical = _shapes(manifest, usual)
        static, static_seconds = bench.timed(typical)
        open_s, static_s = [seconds], [static_seconds]
        for _ in range(_COMPILATIONS - 1):
            open_s.append(bench.timed({})[1])
            static_s.append(bench.timed(typical)[1])
        places = [bench.race("typical", opened, usual, static)]
        batch = _batch(manifest)
        if batch is not None:
            places += bench.elsewhere("batch", bench.batched(opened, batch), _batches)
        places += bench.elsewhere("sizes", opened, _other_sizes)
    return Result(name, statistics.median(open_s), statistics.median(static_s), tuple(places))


class _Bench:
    """The measurement of a model: its compilations and races."""

    def __init__(self, name: str, model: bytes, settings: Settings, folder: Path) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._folder = folder

    def timed(self, shapes: Mapping[str, GivenShape]) -> tuple[Artifact, float]:
        """Compile the model with these shapes in a new process; return the artifact and the
        seconds."""
        context = multiprocessing.get_context("spawn")
        path = self._folder / ("static.timed" if shapes else "open.timed")
        work = self._name, self._model, self._options(shapes), path
        with concurrent.futures.ProcessPoolExecutor(1, context, _warm_up) as pool:
            return pool.submit(_compile, *work).result()

    def compile(self, shapes: Mapping[str, GivenShape]) -> Artifact:
        return compile_model(self._model, self._options(shapes), name=self._name)

    def _options(self, shapes: Mapping[str, GivenShape]) -> CompileOptions:
        return CompileOptions(shapes=shapes, threads=self._settings.threads, verify=False)

    def batched(self, opened: Artifact, batch: NamedDim) -> Artifact:
        """Return an artifact in which only the batch is open; `opened` itself if it has no other
        open dim."""
        dims = opened.manifest.dims
        if len(dims) == 1:
            return opened
        usual = {dim.symbol: dim.typical for dim in dims}
        shapes: dict[str, GivenShape] = {}
        for spec, sizes in zip(
            opened.manifest.inputs, _shapes(opened.manifest, usual).values(), strict=True
        ):
            is_batch = [str(extent) == batch.symbol for extent in spec.shape]
            axes = zip(is_batch, sizes, strict=True)
            shapes[spec.name] = tuple("batch" if is_one else size for is_one, size in axes)
        return self.compile(shapes)

    def elsewhere(self, kind: str, opened: Artifact, drawn: _Drawn) -> Iterator[SizeResult]:
        """Yield the results at other sizes in the artifact's ranges, each against an artifact for
        that size."""
        for sizes in drawn(opened.manifest):
            shapes = _shapes(opened.manifest, sizes)
            try:
                opened.run(_inputs(opened.manifest, shapes))
            except InputMismatchError:  # The preconditions exclude this size.
                continue
            yield self.race(kind, opened, sizes, self.compile(shapes))

    def race(self, kind: str, opened: Artifact, sizes: Sizes, static: Artifact) -> SizeResult:
        shapes = _shapes(opened.manifest, sizes)
        entrants = [
            Entrant("farrier", opened.save(self._folder / "open.farrier")),
            Entrant("farrier:static", static.save(self._folder / "static.farrier")),
        ]
        figures = race(
            entrants,
            _inputs(opened.manifest, shapes),
            threads=self._settings.threads,
            rounds=self._settings.rounds,
            round_s=self._settings.round_s,
        )
        return SizeResult(kind, shapes, figures[0].median_ms, figures[1].ratio)


def _compile(
    name: str, model: bytes, options: CompileOptions, path: Path
) -> tuple[Artifact, float]:
    began = time.perf_counter()
    artifact = compile_model(model, options, name=name)
    seconds = time.perf_counter() - began
    artifact.save(path)
    return load(path), seconds


def _warm_up() -> None:
    """Perform the work that only the first compilation of a process does, such as imports and the
    description of the machine."""
    w = Writer("warm_up", 0)
    w.output(w.op("Relu", w.conv(w.input("x", (1, 3, 32, 32)), 3, 8, 3)), "y", (1, 8, 32, 32))
    compile_model(w.finish(), CompileOptions(verify=False))


def _shapes(manifest: Manifest, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    return {
        spec.name: tuple(evaluate(extent, sizes) for extent in manifest.extents(spec))
        for spec in manifest.inputs
    }


def _inputs(manifest: Manifest, shapes: Shapes) -> Arrays:
    declared = [Input(spec.name, spec.element.numpy, shapes[spec.name]) for spec in manifest.inputs]
    call = {name: typical_values(name, shape) for name, shape in shapes.items()}
    return arrays(call, declared, np.random.default_rng(0))


def _batch(manifest: Manifest) -> NamedDim | None:
    """Return the open dim that is the first axis of the first input, or None if that axis is not
    open."""
    leading = str(manifest.inputs[0].shape[0])
    return next((dim for dim in manifest.dims if dim.symbol == leading), None)


def _batches(manifest: Manifest) -> Iterator[Sizes]:
    batch = _batch(manifest)
    assert batch is not None
    usual = {dim.symbol: dim.typical for dim in manifest.dims}
    for size in _BATCHES:
        if batch.low <= size <= batch.high:
            yield {**usual, batch.symbol: size}


def _other_sizes(manifest: Manifest) -> Iterator[Sizes]:
    """Yield sizes in which all open dims except the batch are scaled by the same factor from their
    typical sizes, within their ranges."""
    batch = _batch(manifest)
    usual = {dim.symbol: dim.typical for dim in manifest.dims}
    free = [dim for dim in manifest.dims if dim != batch and dim.low < dim.high]
    for share in _SHARES if free else ():
        changed = {dim.symbol: round(share * dim.typical) for dim in free}
        within = {dim.symbol: min(max(changed[dim.symbol], dim.low), dim.high) for dim in free}
        if within != {dim.symbol: dim.typical for dim in free}:
            yield {**usual, **within}


def show(result: Result) -> str:
    """Return a line of text such as `resnet18 typical 1.01 batch 1.12 sizes 1.60 compile 1.50`."""
    ratios = {kind: result.ratio(kind) for kind in _MOST}
    said = [f"{kind} {ratio:.3f}" for kind, ratio in ratios.items() if ratio is not None]
    return f"{result.model}: {'  '.join(said)}"


def main() -> int:
    arguments = _parser().parse_args()
    settings = Settings(arguments.threads, arguments.rounds, arguments.round_s)
    results: list[Result] = []
    failed = 0
    try:
        chosen = [(name, _model(name)) for name in arguments.models or NAMES]
    except FarrierError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    for name, model in chosen:
        try:
            results.append(measure(name, model, settings))
        except FarrierError as error:  # One model's error must not prevent the others.
            failed += 1
            print(f"{name}: {error}", flush=True)
        else:
            print(show(results[-1]), flush=True)
        # Written after every model, so that an interrupted run leaves results.
        if arguments.json is not None:
            arguments.json.write_text(_json(results))
    held = lines(results)
    for line in held:
        verdict = "met" if line.is_met else "MISSED"
        print(f"{verdict:6} {line.kind}: {line.value:.3f} of {line.models}, at most {line.most:g}")
    return 1 if failed or not all(line.is_met for line in held) else 0


def _model(name: str) -> bytes:
    source = workload(name)
    if source.opened is None:
        raise UsageError(f"{name} has no open dims")
    return source.opened()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.opened",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="of each engine, in turn (5)")
    parser.add_argument("--round-s", type=float, default=0.05, help="seconds of a round (0.05)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser


def _json(results: Sequence[Result]) -> str:
    facts = {
        "command": " ".join(["python -m bench.opened", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": dataclasses.asdict(describe.describe()),
        "results": [dataclasses.asdict(entry) for entry in results],
        "lines": [
            {**dataclasses.asdict(entry), "is_met": entry.is_met} for entry in lines(results)
        ],
    }
    return json.dumps(facts, indent=1)


if __name__ == "__main__":
    sys.exit(main())
