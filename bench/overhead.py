"""`python -m bench.overhead`: the overhead of a call from Python, on models with little
computation.

Times in microseconds, each the median of some rounds of many calls:

    native        the entry point, called from native code
    Session.run   inputs checked and read in place, outputs in new arrays
    Artifact.run  the same, by the artifact
    copied        Session.run with inputs that are not aligned
    onnxruntime   `InferenceSession.run`, where it is installed

The overhead is the time of Session.run minus that of native.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from bench.models.writer import Writer
from bench.terminal import open_console
from farrier.bench.race import missing_packages
from farrier.options import CompileOptions
from farrier.packaging.draws import random_inputs
from farrier.pipeline import compile_model
from farrier.targets.cpu.loaded import LoadedLibrary
from farrier_device.memory import aligned_buffer
from farrier_device.native import pointers

_ROUNDS = 15


@dataclasses.dataclass(frozen=True, slots=True)
class Overhead:
    """The times of a model's calls, in microseconds."""

    model: str
    native: float
    session: float
    artifact: float
    copied: float
    onnxruntime: float | None

    @property
    def overhead(self) -> float:
        return self.session - self.native


def add() -> bytes:
    """Return a model that adds two inputs of four floats."""
    w = Writer("add", seed=0)
    w.output(w.op("Add", w.input("a", (4,)), w.input("b", (4,))), "y", (4,))
    return w.finish()


def point_conv() -> bytes:
    """Return a model of one 1x1 convolution: 16 channels on 8x8 pixels."""
    w = Writer("point_conv", seed=0)
    w.output(w.conv(w.input("x", (1, 16, 8, 8)), 16, 16, 1), "y", (1, 16, 8, 8))
    return w.finish()


MODELS = {"add of 4 floats": add, "1x1 convolution": point_conv}


def measure(name: str, data: bytes, calls: int) -> Overhead:
    """Compile a model for one thread, and time rounds of `calls` calls."""
    artifact = compile_model(data, CompileOptions(threads=1, verify=False), name="tiny")
    session = artifact.session()
    plain = random_inputs(artifact.manifest.inputs)
    skewed = {key: _placed(array, 4) for key, array in plain.items()}
    inputs = {key: _placed(array, 0) for key, array in plain.items()}
    expected = session.run(plain)
    for feeds in (inputs, skewed):
        for key, array in session.run(feeds).items():
            np.testing.assert_array_equal(array, expected[key])
    outputs = session.run(inputs)  # The native calls write these arrays.
    code = session.code
    assert isinstance(code, LoadedLibrary)  # of a CPU
    native = code.library.time(code.entry, pointers(session.addresses), code.pool, calls)
    del outputs
    return Overhead(
        name,
        native=statistics.median(native) / 1e3,
        session=_microseconds(lambda: session.run(inputs), calls),
        artifact=_microseconds(lambda: artifact.run(inputs), calls),
        copied=_microseconds(lambda: session.run(skewed), calls),
        onnxruntime=None if missing_packages("onnxruntime") else _peer(data, inputs, calls),
    )


def _peer(data: bytes, inputs: dict[str, npt.NDArray[Any]], calls: int) -> float:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return _microseconds(lambda: session.run(None, inputs), calls)


def _placed(array: npt.NDArray[Any], skew: int) -> npt.NDArray[Any]:
    """Return a copy of an array that starts `skew` bytes after the start of a cache line."""
    memory = aligned_buffer(array.nbytes + 64).view[skew : skew + array.nbytes]
    copy = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _microseconds(run: Callable[[], Any], calls: int) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(calls):
            run()
        rounds.append((time.perf_counter_ns() - start) / calls / 1e3)
    return statistics.median(rounds)


def table(rows: list[Overhead]) -> Table:
    rendered = Table(box=None)
    rendered.add_column("us a call", no_wrap=True)
    names = ("native", "Session.run", "Artifact.run", "copied", "onnxruntime", "overhead")
    for name in names:
        rendered.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        figures = (row.native, row.session, row.artifact, row.copied, row.onnxruntime, row.overhead)
        rendered.add_row(
            row.model, *("-" if figure is None else f"{figure:.2f}" for figure in figures)
        )
    return rendered


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--calls", type=int, default=2000, help="of a round")
    arguments = parser.parse_args()
    rows = [measure(name, build(), arguments.calls) for name, build in MODELS.items()]
    open_console().print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
