"""Real exports through Farrier and ONNX Runtime: the same numbers? how fast?

    python -m bench.real FOLDER [NAME ...] [--open] [--sizes N] [--threads N] [--repeat N]

FOLDER holds ONNX files, by `bench.exports` or of your own. Inputs are random; an error is the
largest difference as a share of the output's range. Without --open each model is compiled for N
random sizes of its open dims, one artifact a size; with it, once for all sizes.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from farrier.artifact.artifact import Artifact
from farrier.options import CompileOptions
from farrier.pipeline import compile_model

Arrays = dict[str, npt.NDArray[Any]]

LARGEST = 28  # of a random size
_INTEGERS = 100  # random integers are below this
TOLERANCE = 1e-4


def main() -> int:
    arguments = _parser().parse_args()
    paths = sorted(Path(arguments.folder).glob("*.onnx"))
    chosen = [path for path in paths if not arguments.names or path.stem in arguments.names]
    bad, ratios = 0, []
    for path in chosen:
        try:
            error, ratio, compile_s = _one(path.read_bytes(), arguments)
        except Exception as failure:  # of any kind: one model must not keep the others
            bad += 1
            print(f"{path.stem:24} {type(failure).__name__}: {failure}", flush=True)
            continue
        bad += not error <= TOLERANCE
        ratios.append(ratio)
        print(
            f"{path.stem:24} error {error:.1e}   {ratio:.2f} of ONNX Runtime's time"
            f"   compiled in {compile_s:.1f} s",
            flush=True,
        )
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"{len(ratios)} of {len(chosen)}; geometric mean {mean:.2f}")
    return min(bad, 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.real")
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--sizes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=20)
    return parser


def _one(data: bytes, arguments: argparse.Namespace) -> tuple[float, float, float]:
    """Largest error, median ratio of latencies, and seconds to compile."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options)
    rng = np.random.default_rng(0)
    names = [output.name for output in session.get_outputs()]
    begin = time.perf_counter()
    opened = _compiled(data, _open_shapes(data), arguments.threads) if arguments.open else None
    compile_s = time.perf_counter() - begin
    worst, ratios = 0.0, []
    for _ in range(arguments.sizes):
        inputs = _inputs(data, rng)
        begin = time.perf_counter()
        artifact = opened or _compiled(
            data, {name: array.shape for name, array in inputs.items()}, arguments.threads
        )
        compile_s = max(compile_s, time.perf_counter() - begin)
        ours = artifact.session(arguments.threads)
        theirs = session.run(names, inputs)
        made = ours.run(inputs)
        for name, expected in zip(names, theirs, strict=True):
            worst = max(worst, _error(made[name], expected))
        calls = functools.partial(ours.run, inputs), functools.partial(session.run, names, inputs)
        ratios.append(_ratio(*calls, arguments.repeat))
        ours.close()
    return worst, statistics.median(ratios), compile_s


def _compiled(data: bytes, shapes: Mapping[str, Any], threads: int) -> Artifact:
    return compile_model(data, CompileOptions(shapes=dict(shapes), threads=threads, verify=False))


def _open_shapes(data: bytes) -> dict[str, tuple[int | str, ...]]:
    """The model's inputs with its open dims open, for all sizes that `_inputs` draws."""
    shapes = {}
    for info in onnx.load_from_string(data).graph.input:
        dims = info.type.tensor_type.shape.dim
        shapes[info.name] = tuple(
            d.dim_value if d.HasField("dim_value") else f"{d.dim_param}:1..{LARGEST}" for d in dims
        )
    return shapes


def _inputs(data: bytes, rng: np.random.Generator) -> Arrays:
    """Random inputs, a random size for each open dim."""
    sizes: dict[str, int] = {}
    arrays: Arrays = {}
    for info in onnx.load_from_string(data).graph.input:
        kind = info.type.tensor_type
        shape = [
            d.dim_value
            if d.HasField("dim_value")
            else sizes.setdefault(d.dim_param, int(rng.integers(2, _largest(d.dim_param) + 1)))
            for d in kind.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            arrays[info.name] = rng.standard_normal(shape).astype(dtype)
        else:
            limit = min((_INTEGERS, *sizes.values()))  # an index of whatever there is
            arrays[info.name] = rng.integers(0, limit, shape).astype(dtype)
    return arrays


def _largest(dim: str) -> int:
    return 4 if "batch" in dim else LARGEST


def _error(made: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    if made.shape != expected.shape:
        return float("inf")
    span = float(np.ptp(expected.astype(np.float64))) if expected.size else 0.0
    if not expected.size:
        return 0.0
    difference = np.abs(made.astype(np.float64) - expected.astype(np.float64)).max()
    return float(difference / (span or 1.0))


def _ratio(ours: Any, theirs: Any, repeat: int) -> float:
    """Our median time over theirs, taken in turns after a warm-up of both."""
    times: list[list[float]] = [[], []]
    for round_ in range(repeat + 3):
        for side, call in enumerate((ours, theirs)):
            begin = time.perf_counter()
            call()
            if round_ >= 3:
                times[side].append(time.perf_counter() - begin)
    return statistics.median(times[0]) / statistics.median(times[1])


if __name__ == "__main__":
    sys.exit(main())
