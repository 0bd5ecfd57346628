"""Whole models: compiled here, run in the root, compared with ONNX Runtime's outputs here."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bench.boards import board
from bench.boards.arrays import Arrays
from bench.boards.guest import Guest, GuestError, exchange
from bench.boards.root import Root
from bench.workloads import workload
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.release.verify import random_inputs

TOLERANCE = 1e-3  # of the range of an output, as in `bench`


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """One model's run. `error` is max |Farrier - ONNX Runtime| over max |ONNX Runtime|, the largest
    of all outputs; `failure` says why there is none."""

    model: str
    error: float
    seconds: float
    failure: str = ""

    @property
    def is_right(self) -> bool:
        return not self.failure and self.error <= TOLERANCE


def check(names: Sequence[str], root: Root, say: Callable[[str], None]) -> Iterator[Checked]:
    """Runs the models of these names (`bench.workloads`), one after the other."""
    with exchange() as folder, Guest(root, folder) as guest:
        for name in names:
            one = workload(name)
            data = one.build()
            options = CompileOptions(board.TARGET, one.shapes, threads=2, verify=False)
            artifact = compile_model(data, options, name=name)
            inputs = random_inputs(artifact.manifest.inputs)
            expected = _onnxruntime(data, inputs)
            say(f"{name}: compiled for {board.TARGET}")
            start = time.perf_counter()
            try:
                found = guest.run(artifact, inputs)
            except GuestError as error:
                yield Checked(name, float("nan"), time.perf_counter() - start, str(error))
                continue
            yield Checked(name, _error(found, expected), time.perf_counter() - start)


def _onnxruntime(model: bytes, inputs: Arrays) -> Arrays:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _error(found: Arrays, expected: Arrays) -> float:
    """Infinite where a shape is another or a number is none."""
    errors = [0.0]
    for name, right in expected.items():
        if found[name].shape != right.shape or not np.isfinite(found[name]).all():
            return float("inf")
        off = np.max(np.abs(found[name].astype(np.float64) - right), initial=0.0)
        errors.append(float(off / max(np.max(np.abs(right), initial=0.0), 1e-30)))
    return max(errors)
