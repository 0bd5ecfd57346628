"""Complete models on the GPU of this machine, or on Mesa's emulation of a GPU.

    python -m bench.gpus.models [MODEL …] [--shape MODEL:INPUT=DIM,…] [--target webgpu] [--f16]
                                [--sizes 2]

A MODEL is a name of `python -m bench`, an ONNX file, or a folder of them; by default the eleven
models of `python -m bench`. Each is compiled for the target without tuning, and run on random
inputs. Models with open dims are run at `--sizes` sizes, in the ranges of `--shape`, which is the
option of `bench.real`. With --f16 all floats of the models have 16 bits.

    error      largest difference from ONNX Runtime, as a share of its output's range; where that is
               above the line, from the operators in float64, on the same weights. The line is
               1e-4, for f16 1e-2
    device     kernels on the GPU, of all kernels
    launches   kernel launches of a run
    within     copies to the host that are not those of outputs
    arrays     storage buffers of a kernel, at most
    first, s   seconds from the open device to the first outputs; `later` are those of another run
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from rich.console import Console
from rich.table import Table

from bench.compare import difference, in_float64
from bench.gpus.halves import halved
from bench.real import open_shapes, workloads
from bench.terminal import open_console, run
from bench.workloads import NAMES, Workload
from farrier.errors import FarrierError, UsageError
from farrier.frontends.builder import ImportedModel
from farrier.frontends.onnx.importer import import_model
from farrier.ir.special import convert
from farrier.model_tuning.hot import shapes_at
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.runtime.artifact import Artifact
from farrier_device.program import HOST, Branch, Copy, Launch, Program, Repeat, Step
from farrier_device.webgpu_library import WGSL

Arrays = dict[str, npt.NDArray[Any]]

MOST_ERROR, MOST_ERROR_F16 = 1e-4, 1e-2
MOST_ARRAYS = 8  # By WebGPU's default limits.
_BELOW = 100  # Random integers are smaller.
# The models that f16 does not fit: to round the activations of the recognizer moves its result by
# more than 1e-2, on a processor as well.
_BEYOND_F16 = frozenset({"rapidocr_rec"})
_FEWEST = 2  # Where no size bounds them they are smaller than this: BERT has two types of tokens.


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a model, which the docstring of this module explains."""

    error: float
    on_device: int
    kernels: int
    launches: int
    copies_within: int
    arrays: int
    first_s: float
    later_s: float


def measure(source: Workload, target: str, is_f16: bool, sizes: int) -> Figures:
    """Compile and run a model for a GPU target. Raises FarrierError."""
    original = source.build()
    data = halved(original) if is_f16 else original
    shapes: Any = source.shapes or source.open_shapes or open_shapes(data)
    artifact = compile_model(data, CompileOptions(target, shapes=shapes, verify=False))
    opened = import_model(original, shapes)
    line = MOST_ERROR_F16 if is_f16 else MOST_ERROR
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # It would report the indices that it refuses.
    peer = onnxruntime.InferenceSession(original, options, providers=["CPUExecutionProvider"])
    errors: list[float] = []
    seconds: list[float] = []
    for inputs, expected in _calls(peer, opened, sizes if opened.dims else 1):
        ours = _run(artifact, inputs, is_f16, seconds)
        error = difference(ours, expected)
        if error > line:
            error = min(error, difference(ours, in_float64(data, _fed(inputs, is_f16))))
        errors.append(error)
    _run(artifact, inputs, is_f16, seconds)
    spaces = [kernel.space for kernel in artifact.manifest.kernels]
    program = artifact.code.program
    assert program is not None, "a GPU is driven by a program"
    return Figures(
        error=max(errors),
        on_device=len(spaces) - spaces.count(HOST),
        kernels=len(spaces),
        launches=sum(isinstance(step, Launch) for step in steps_of(program.steps)),
        copies_within=len(copies_within(program)),
        arrays=most_arrays(artifact),
        first_s=seconds[0],
        later_s=seconds[-1],
    )


def copies_within(program: Program) -> list[Copy]:
    """Return the copies from the GPU to the host during a run, except for those of outputs."""
    return [
        step
        for step in steps_of(program.steps)
        if isinstance(step, Copy)
        and step.source.space != HOST
        and not step.target.memory.startswith("output")
    ]


def steps_of(steps: Sequence[Step]) -> Iterator[Step]:
    """Yield driver steps, including those nested in branches and loops."""
    for step in steps:
        yield step
        if isinstance(step, Branch):
            yield from steps_of((*step.then, *step.otherwise))
        if isinstance(step, Repeat):
            yield from steps_of(step.body)


def most_arrays(artifact: Artifact) -> int:
    """Return the largest number of storage buffers of a GPU kernel."""
    texts = (module.content for module in artifact.code.objects if module.kind == WGSL)
    return max((text.count(b"@binding(") for text in texts), default=0)


def _calls(
    peer: onnxruntime.InferenceSession, opened: ImportedModel, count: int
) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield random inputs of different sizes, with ONNX Runtime's outputs. Integers may be indices
    into a small table: if ONNX Runtime rejects them, smaller ones are drawn. Raises UsageError if
    it rejects the smallest."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        sizes = {dim.symbol: int(rng.integers(dim.low, dim.high + 1)) for dim in opened.dims}
        below = min((_BELOW, *sizes.values())) if sizes else _FEWEST
        while True:
            inputs = _drawn(rng, opened, sizes, below)
            try:
                expected = _by_name(peer, inputs)
            except Exception as error:  # ONNX Runtime raises types of its own.
                if below <= 1:
                    reason = str(error).strip().splitlines()[0]
                    raise UsageError(f"ONNX Runtime refuses inputs of {sizes}: {reason}") from error
                below = max(1, below // 2)
            else:
                break
        yield inputs, expected


def _drawn(
    rng: np.random.Generator, opened: ImportedModel, sizes: Mapping[str, int], below: int
) -> Arrays:
    """Return random inputs; integers are less than `below`."""
    shapes = shapes_at(opened, sizes)
    arrays: Arrays = {}
    for name, value in zip(opened.input_names, opened.graph.inputs, strict=True):
        shape, dtype = shapes[name], value.type.dtype
        drawn = rng.standard_normal(shape) if dtype.is_float else rng.integers(0, below, shape)
        arrays[name] = convert(np.asarray(drawn), dtype)
    return arrays


def _run(artifact: Artifact, inputs: Arrays, is_f16: bool, seconds: list[float]) -> Arrays:
    fed = _fed(inputs, is_f16)
    began = time.perf_counter()
    outputs = artifact.run(fed)
    seconds.append(time.perf_counter() - began)
    return outputs


def _fed(inputs: Arrays, is_f16: bool) -> Arrays:
    return {name: _as_half(array) for name, array in inputs.items()} if is_f16 else inputs


def _as_half(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.astype(np.float16) if array.dtype == np.float32 else array


def _by_name(peer: onnxruntime.InferenceSession, inputs: Arrays) -> Arrays:
    names = [output.name for output in peer.get_outputs()]
    return dict(zip(names, map(np.asarray, peer.run(names, inputs)), strict=True))


def main() -> int:
    arguments = _parser().parse_args()
    console = open_console()
    return run(lambda console: _command(arguments, console), console)


def _command(arguments: argparse.Namespace, console: Console) -> int:
    line = MOST_ERROR_F16 if arguments.f16 else MOST_ERROR
    failed: dict[str, str] = {}
    figures: dict[str, Figures] = {}
    for source in workloads(arguments.models or NAMES, arguments.shape):
        try:
            each = measure(source, arguments.target, arguments.f16, arguments.sizes)
        except FarrierError as error:
            failed[source.name] = str(error)
            console.print(f"{source.name}: {error}", markup=False)
            continue
        figures[source.name] = each
        console.print(f"{source.name}: error {each.error:.1e}, {each.later_s:.1f} s", markup=False)
        is_beyond = each.error > line and not (arguments.f16 and source.name in _BEYOND_F16)
        if is_beyond or each.arrays > MOST_ARRAYS:
            failed[source.name] = "beyond the line"
    console.print(table(figures))
    console.print(f"models: {', '.join(failed)} failed" if failed else "models: all are right")
    return 1 if failed else 0


def table(figures: Mapping[str, Figures]) -> Table:
    """Return a table with a row for each model."""
    columns = Table(box=None)
    columns.add_column("model", no_wrap=True)
    for name in ("error", "device", "launches", "within", "arrays", "first, s", "later"):
        columns.add_column(name, justify="right", no_wrap=True)
    for name, each in figures.items():
        columns.add_row(
            name,
            f"{each.error:.1e}",
            f"{each.on_device} of {each.kernels}",
            str(each.launches),
            str(each.copies_within),
            str(each.arrays),
            f"{each.first_s:.1f}",
            f"{each.later_s:.1f}",
        )
    return columns


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpus.models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--shape", action="append", default=[], metavar="MODEL:INPUT=DIM,…")
    parser.add_argument("--target", default="webgpu")
    parser.add_argument("--f16", action="store_true", help="all floats have 16 bits")
    parser.add_argument("--sizes", type=int, default=2, help="of open dims")
    return parser


if __name__ == "__main__":
    sys.exit(main())
