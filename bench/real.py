"""Models as users upload them: one artifact for all sizes, checked against limits.

    python -m bench.real MODEL … [--shape MODEL:INPUT=DIM,…] [--hot MODEL:DIM=SIZE,…] [--sizes 20]
                         [--static] [--threads 2] [--json FILE]

A MODEL is an ONNX file, a folder of them (`bench.exports` writes one), or a name of `python -m
bench`. Its open dims have the ranges and steps of `--shape`, which is the option of `farrier
compile` preceded by the model's name. Without the option, they have the ranges of
`bench.workloads`, or 1..4 for a dim whose name contains "batch" and 2..28 for any other. The
artifact is compiled once, without tuning, and run at its hot size and at random sizes, on random
inputs. It is compared with ONNX Runtime, and with --static also with an artifact for that size.

    error     largest difference from ONNX Runtime, as a share of its output's range. Where that is
              above 1e-4, also from a float64 reference: `exact` of Farrier, `its` of ONNX Runtime
    ratio     Farrier's latency over ONNX Runtime's, which knows the size beforehand: the geometric
              mean of all sizes, and the worst. Each engine runs in its own process, in turns
    hot       latency over a static artifact's at the hot size; `others` is the worst elsewhere
    compile   seconds from the file to the artifact
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from rich.table import Table

from bench.compare import difference, in_float64
from bench.terminal import open_console
from bench.workloads import NAMES, Workload, workload
from farrier.bench.race import Entrant, race
from farrier.errors import FarrierError, UsageError
from farrier.frontends.builder import ImportedModel
from farrier.frontends.onnx.importer import import_model, inspect
from farrier.ir.special import convert
from farrier.model_tuning.hot import hot_sizes, shapes_at
from farrier.options import CompileOptions
from farrier.options.shapes import GivenShape, parse_hot, parse_shapes, parse_sum
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact
from farrier_device import describe

Array = npt.NDArray[Any]
Arrays = dict[str, Array]

TOLERANCE = 1e-4
_MOST_MEAN, _MOST_RATIO = 1.0, 2.0
_MOST_HOT, _MOST_OTHER = 1.05, 1.5
_MOST_COMPILE_S = 20.0
_BATCHES, _OTHERS = "1..4", "2..28"  # The ranges of open dims for which none is stated.
_INTEGERS = 100  # Random integers are below this.


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The result at one size. `exact` and `peer_exact` are the engines' errors against float64, if
    their outputs differ by more than TOLERANCE; `over_static` is None without a static artifact."""

    sizes: Mapping[str, int]
    is_hot: bool
    error: float
    exact: float | None
    peer_exact: float | None
    median_ms: float
    ratio: float
    over_static: float | None

    @property
    def own_error(self) -> float:
        """Farrier's own error: against float64 if that was computed, else against ONNX Runtime."""
        return self.error if self.exact is None else self.exact


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The results of a model at all of its sizes."""

    model: str
    compile_s: float
    runs: tuple[Run, ...]

    @property
    def mean_ratio(self) -> float:
        return statistics.geometric_mean(run.ratio for run in self.runs)

    @property
    def worst_ratio(self) -> float:
        return max(run.ratio for run in self.runs)

    def over_static(self, is_hot: bool) -> float | None:
        """Return the largest ratio of latencies to a static artifact, over the hot sizes or over
        the other sizes."""
        ratios = [
            run.over_static
            for run in self.runs
            if run.is_hot is is_hot and run.over_static is not None
        ]
        return max(ratios, default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A figure with a limit, for the worst model or for all models together."""

    asked: str
    value: float
    most: float
    model: str  # The model of the figure.

    @property
    def is_met(self) -> bool:
        return self.value <= self.most


def lines(results: Sequence[Result]) -> list[Line]:
    """Return the figures that have limits, if the results contain them."""

    def worst(asked: str, most: float, figures: Mapping[str, float | None]) -> Iterator[Line]:
        present = {model: figure for model, figure in figures.items() if figure is not None}
        if present:
            model = max(present, key=lambda name: present[name])
            yield Line(asked, present[model], most, model)

    limits = [
        *worst(
            "error, of ONNX Runtime's output or exactly",
            TOLERANCE,
            {result.model: max(run.own_error for run in result.runs) for result in results},
        )
    ]
    if results:
        mean = statistics.geometric_mean(result.mean_ratio for result in results)
        limits.append(Line("latency over ONNX Runtime's, geometric mean", mean, _MOST_MEAN, "all"))
    by_name = {result.model: result for result in results}
    ratios: dict[str, float | None] = {name: result.worst_ratio for name, result in by_name.items()}
    hot = {name: result.over_static(is_hot=True) for name, result in by_name.items()}
    others = {name: result.over_static(is_hot=False) for name, result in by_name.items()}
    seconds: dict[str, float | None] = {name: result.compile_s for name, result in by_name.items()}
    limits += worst("latency over ONNX Runtime's, worst size", _MOST_RATIO, ratios)
    limits += worst("latency over a static artifact's, hot size", _MOST_HOT, hot)
    limits += worst("latency over a static artifact's, other sizes", _MOST_OTHER, others)
    limits += worst("seconds to compile", _MOST_COMPILE_S, seconds)
    return limits


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    sizes: int
    threads: int
    static: bool
    rounds: int
    round_s: float


def measure(source: Workload, settings: Settings) -> Result:
    """Compile a model and run it at its hot sizes and at random ones. Raises FarrierError if it
    cannot be compiled or run."""
    data = source.build()
    shapes = source.open_shapes or open_shapes(data)
    opened = import_model(data, shapes, source.hot)
    began = time.perf_counter()
    options = CompileOptions(shapes=shapes, hot=source.hot, threads=settings.threads, verify=False)
    artifact = compile_model(data, options, name=source.name)
    compile_s = time.perf_counter() - began
    rng = np.random.default_rng(0)
    hot = hot_sizes(opened.dims, source.hot)
    drawn = [
        {dim.symbol: int(rng.integers(dim.low, dim.high + 1)) for dim in opened.dims}
        for _ in range(settings.sizes if opened.dims else 1)
    ]
    with tempfile.TemporaryDirectory(prefix="farrier-real-") as name:
        bench = _Bench(source.name, data, opened, artifact, settings, Path(name))
        runs = [
            bench.run(sizes, rng, is_hot=number < len(hot))
            for number, sizes in enumerate([*hot, *drawn])
        ]
    return Result(source.name, compile_s, tuple(runs))


class _Bench:
    """The engines that run a model, and the data for their comparison."""

    def __init__(
        self,
        name: str,
        data: bytes,
        opened: ImportedModel,
        artifact: Artifact,
        settings: Settings,
        folder: Path,
    ) -> None:
        self._name = name
        self._data = data
        self._opened = opened
        self._artifact = artifact
        self._settings = settings
        self._folder = folder
        self._model = folder / "model.onnx"
        self._model.write_bytes(data)
        self._entrant = Entrant("farrier", artifact.save(folder / "open.farrier"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.threads
        options.log_severity_level = 3
        self._peer = onnxruntime.InferenceSession(data, options)

    def run(self, sizes: Mapping[str, int], rng: np.random.Generator, *, is_hot: bool) -> Run:
        """Compare and time the engines at one size, given for each symbol."""
        shapes = shapes_at(self._opened, sizes)
        inputs = self._inputs(shapes, sizes, rng)
        names = list(self._opened.output_names)
        theirs = dict(zip(names, map(np.asarray, self._peer.run(names, inputs)), strict=True))
        ours = self._artifact.run(inputs)
        error = difference(ours, theirs)
        exact = peer_exact = None
        if error > TOLERANCE:
            wanted = in_float64(self._data, inputs)
            exact, peer_exact = difference(ours, wanted), difference(theirs, wanted)
        entrants = [self._entrant, Entrant("onnxruntime", self._model)]
        if self._settings.static:
            entrants.append(self._static(shapes))
        figures = race(
            entrants,
            inputs,
            threads=self._settings.threads,
            rounds=self._settings.rounds,
            round_s=self._settings.round_s,
        )
        return Run(
            {dim.name: dim.step * sizes[dim.symbol] for dim in self._opened.dims},
            is_hot,
            error,
            exact,
            peer_exact,
            figures[0].median_ms,
            figures[1].ratio,
            figures[2].ratio if self._settings.static else None,
        )

    def _inputs(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        sizes: Mapping[str, int],
        rng: np.random.Generator,
    ) -> Arrays:
        """Return random inputs: normally distributed floats, and integers below 100 and below every
        size, so that they are valid indices."""
        limit = min((_INTEGERS, *sizes.values()))
        arrays: Arrays = {}
        for name, value in zip(self._opened.input_names, self._opened.graph.inputs, strict=True):
            dtype = value.type.dtype
            drawn = rng.standard_normal if dtype.is_float else _below(rng, limit)
            arrays[name] = convert(np.asarray(drawn(shapes[name])), dtype)
        return arrays

    def _static(self, shapes: Mapping[str, tuple[int, ...]]) -> Entrant:
        options = CompileOptions(shapes=dict(shapes), threads=self._settings.threads, verify=False)
        artifact = compile_model(self._data, options, name=self._name)
        return Entrant("farrier:static", artifact.save(self._folder / "static.farrier"))


def _below(rng: np.random.Generator, limit: int) -> Any:
    return lambda shape: rng.integers(0, limit, shape)


def _read(path: Path) -> bytes:
    """Return a model's bytes with the weights of its data files included."""
    return bytes(onnx.load(path).SerializeToString())


def open_shapes(data: bytes) -> dict[str, GivenShape]:
    """Return the shapes of the model's inputs, with a range for each open dim."""
    return {
        declared.name: tuple(dim if isinstance(dim, int) else _range(dim) for dim in declared.dims)
        for declared in inspect(data).inputs
        if declared.dims is not None
    }


def _range(dim: str) -> str:
    if parse_sum(dim) is not None:
        return "?"  # The model states its terms.
    return f"{dim}:{_BATCHES if 'batch' in dim else _OTHERS}"


def table(results: Sequence[Result]) -> Table:
    """Return a table with one row a model."""
    rendered = Table(box=None)
    rendered.add_column("model", no_wrap=True)
    columns = ("sizes", "error", "exact", "its", "ratio", "worst", "hot", "others", "compile s")
    for name in columns:
        rendered.add_column(name, justify="right", no_wrap=True)
    for result in results:
        doubtful = [run for run in result.runs if run.exact is not None]
        rendered.add_row(
            result.model,
            str(len(result.runs)),
            f"{max(run.error for run in result.runs):.1e}",
            *(
                f"{max(getattr(run, which) for run in doubtful):.1e}" if doubtful else "-"
                for which in ("exact", "peer_exact")
            ),
            f"{result.mean_ratio:.2f}",
            f"{result.worst_ratio:.2f}",
            *(
                "-" if figure is None else f"{figure:.2f}"
                for figure in (result.over_static(is_hot=True), result.over_static(is_hot=False))
            ),
            f"{result.compile_s:.1f}",
        )
    return rendered


def workloads(
    models: Sequence[str], shapes: Sequence[str] = (), hot: Sequence[str] = ()
) -> list[Workload]:
    """Return the models that the command's arguments select, with their shapes and hot sizes.
    Raises UsageError."""
    collected: list[Workload] = []
    for argument in models:
        path = Path(argument)
        if argument in NAMES:
            collected.append(workload(argument))
        elif path.is_dir() or path.suffix == ".onnx":
            files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
            collected += [Workload(file.stem, functools.partial(_read, file)) for file in files]
        else:
            raise UsageError(
                f"{argument} is no folder, no .onnx file and no model of the bench",
                hint=f"models of the bench: {', '.join(NAMES)}",
            )
    return [
        dataclasses.replace(
            file_or_workload,
            open_shapes=parse_shapes(_of(file_or_workload.name, shapes))
            or file_or_workload.open_shapes,
            hot=parse_hot(_of(file_or_workload.name, hot)) or file_or_workload.hot,
        )
        for file_or_workload in collected
    ]


def _of(model: str, texts: Sequence[str]) -> list[str]:
    """Return the texts that begin with this model's name, without the name."""
    return [text.removeprefix(f"{model}:") for text in texts if text.startswith(f"{model}:")]


def main() -> int:
    arguments = _parser().parse_args()
    console = open_console()
    settings = Settings(
        arguments.sizes, arguments.threads, arguments.static, arguments.rounds, arguments.round_s
    )
    try:
        chosen = workloads(arguments.models, arguments.shape, arguments.hot)
    except FarrierError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return error.exit_code
    results, failed = [], 0
    for source in chosen:
        try:
            results.append(measure(source, settings))
        except FarrierError as error:  # One model's error must not prevent the others.
            failed += 1
            console.print(f"{source.name}: {error}", style="red", markup=False)
        else:
            run = results[-1]
            console.print(f"{source.name}: {run.mean_ratio:.2f} of ONNX Runtime's latency")
        # Written after every model, so that an interrupted run leaves results.
        if arguments.json is not None:
            arguments.json.write_text(_json(results))
    console.print(table(results))
    held = lines(results)
    for line in held:
        said = "met" if line.is_met else "MISSED"
        console.print(
            f"{said:6} {line.asked}: {line.value:.3g} ({line.model}), at most {line.most:g}",
            style=None if line.is_met else "red",
            markup=False,
        )
    return 1 if failed or not all(line.is_met for line in held) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.real",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--shape", action="append", default=[], metavar="MODEL:INPUT=DIM,…")
    parser.add_argument("--hot", action="append", default=[], metavar="MODEL:DIM=SIZE,…")
    parser.add_argument("--sizes", type=int, default=20, help="random sizes of each model (20)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--static", action="store_true", help="compile each size by itself too")
    parser.add_argument("--rounds", type=int, default=5, help="of each engine, in turn (5)")
    parser.add_argument("--round-s", type=float, default=0.05, help="seconds of a round (0.05)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser


def _json(results: Sequence[Result]) -> str:
    facts = {
        "command": " ".join(["python -m bench.real", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": dataclasses.asdict(describe.describe()),
        "onnxruntime": onnxruntime.__version__,
        "results": [dataclasses.asdict(entry) for entry in results],
        "lines": [
            {**dataclasses.asdict(entry), "is_met": entry.is_met} for entry in lines(results)
        ],
    }
    return json.dumps(facts, indent=1)


if __name__ == "__main__":
    sys.exit(main())
