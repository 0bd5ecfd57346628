"""Complete models: compiled on this machine, run on an emulated one, compared with ONNX Runtime's
outputs on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from bench.boards import board
from bench.boards.arrays import Arrays
from bench.boards.guest import Guest, GuestError, exchange
from bench.boards.root import Root
from bench.compare import difference, in_float64
from bench.real import open_shapes
from bench.workloads import workload
from farrier.errors import FarrierError, UsageError
from farrier.frontends.onnx.model.file import Model
from farrier.options import CompileOptions
from farrier.options.precision import Precision
from farrier.options.shapes import GivenShape
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact

TOLERANCE = 1e-5  # As a share of the range of an output.
_THREADS = 2
Run: TypeAlias = Callable[[Artifact, Arrays], Arrays]
"""Run an artifact on inputs; raises GuestError."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A model, with the shapes of its inputs."""

    name: str
    model: Model
    shapes: Mapping[str, GivenShape] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """The result of running a model for a target. `error` is the largest difference from ONNX
    Runtime relative to the range of an output. If it exceeds `tolerance`, `exact` is Farrier's
    difference from a float64 reference, and `peer_exact` ONNX Runtime's. `failure` is the reason if
    the run failed."""

    model: str
    target: str
    error: float
    seconds: float
    exact: float | None = None
    peer_exact: float | None = None
    failure: str = ""
    tolerance: float = TOLERANCE

    @property
    def is_right(self) -> bool:
        error = self.error if self.exact is None else self.exact
        return not self.failure and error <= self.tolerance


def named(names: Sequence[str]) -> list[Source]:
    """Return models of `bench.workloads` by name. Raises UsageError for an unknown name."""
    workloads = map(workload, names)
    return [
        Source(source.name, Model.of_bytes(source.build(), source.name), source.shapes)
        for source in workloads
    ]


def files(folder: Path) -> list[Source]:
    """Return the ONNX files of a folder as models. Their open dims stay open, in the ranges of
    `bench.real`. Raises UsageError for an empty folder."""
    if not (paths := sorted(folder.glob("*.onnx"))):
        raise UsageError(
            f"{folder} holds no .onnx file", hint="`make exports` leaves some in build/models"
        )
    return [
        Source(path.stem, Model.of_path(path), open_shapes(path.read_bytes())) for path in paths
    ]


@contextlib.contextmanager
def guests(targets: Sequence[str], root: Root) -> Iterator[Mapping[str, Run]]:
    """Return a context with a running Python of the emulated machine for each target."""
    with exchange() as folder, contextlib.ExitStack() as stack:
        runs = {}
        for target in targets:
            (own := folder / target).mkdir()
            guest = Guest(root, own, cpu=board.qemu_cpu(target))
            runs[target] = stack.enter_context(guest).run
        yield runs


def check(
    sources: Sequence[Source],
    runs: Mapping[str, Run],
    say: Callable[[str], None],
    precision: Precision = Precision.F32,
) -> Iterator[Checked]:
    """Run each model for each target on random inputs of its typical sizes, one after the other,
    and yield the results."""
    for source in sources:
        for target, run in runs.items():
            start = time.perf_counter()
            try:
                yield _check(source, target, run, say, precision)
            except (FarrierError, GuestError) as error:
                seconds = time.perf_counter() - start
                yield Checked(source.name, target, float("nan"), seconds, failure=str(error))


def _check(
    source: Source, target: str, run: Run, say: Callable[[str], None], precision: Precision
) -> Checked:
    tolerance = TOLERANCE if precision is Precision.F32 else precision.tolerance
    options = CompileOptions(
        target, source.shapes, threads=_THREADS, verify=False, precision=precision
    )
    artifact = compile_model(source.model, options, name=source.name)
    say(f"{source.name}: compiled for {target}")
    inputs = random_inputs(artifact.manifest.inputs)
    start = time.perf_counter()
    outputs = run(artifact, inputs)
    seconds = time.perf_counter() - start
    expected = onnxruntime_outputs(source.model, artifact, inputs)
    if (error := difference(outputs, expected)) <= tolerance:
        return Checked(source.name, target, error, seconds, tolerance=tolerance)
    wanted = in_float64(source.model, inputs)
    errors = difference(outputs, wanted), difference(expected, wanted)
    return Checked(source.name, target, error, seconds, *errors, tolerance=tolerance)


def onnxruntime_outputs(model: Model, artifact: Artifact, inputs: Arrays) -> Arrays:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS
    options.log_severity_level = 3
    of = bytes(model.message) if model.path is None else str(model.path)
    session = onnxruntime.InferenceSession(of, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in artifact.manifest.outputs]
    return dict(zip(names, map(np.asarray, session.run(names, inputs)), strict=True))
