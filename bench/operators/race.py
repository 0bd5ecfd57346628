"""Race Farrier against ONNX Runtime on a model, in a single process, in turns.

Outputs are compared before the race. A turn is a number of consecutive calls of an engine; turns
alternate, and the order is reversed in every other pair. The threads of ONNX Runtime spin for about
30 ms after a run (docs/develop/measuring.md), on cores that the next turn needs. Each turn
therefore begins after a longer pause.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime

from bench.operators.model import Array, OperatorModel
from farrier.errors import FarrierError
from farrier.options import CompileOptions
from farrier.pipeline import compile_model

# The largest difference, as a share of an output's magnitude: that of the race of models.
TOLERANCE = 1e-3
# The rounding of f16 outputs alone is 5e-4 of each value.
_NARROW_TOLERANCE = 1e-2
# ONNX Runtime's threads spin for 30 ms.
_PAUSE_S = 0.04
# Limits of the calls of one turn: enough for a median, and no more than the shortest kernels need.
_FEWEST_CALLS, _MOST_CALLS = 3, 200

Run = Callable[[], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Effort:
    """The extent of a measurement: the number of turns of each engine, and the seconds of a
    turn."""

    turns: int
    turn_s: float


FULL = Effort(turns=9, turn_s=0.03)
QUICK = Effort(turns=3, turn_s=0.01)


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """The latencies of an engine, in milliseconds; `turns` are the medians of its turns."""

    median: float
    best: float
    p10: float
    p90: float
    turns: tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """The result of a model. `error` is the largest difference from ONNX Runtime relative to the
    output's magnitude, None if ONNX Runtime does not run the model; `rules` are the schedule rules
    of its kernels. `failure` is Farrier's message if it does not compile or run the model."""

    model: str
    farrier: Latency | None = None
    peer: Latency | None = None
    error: float | None = None
    rules: tuple[str, ...] = ()
    failure: str = ""
    tolerance: float = TOLERANCE

    @property
    def ratio(self) -> float | None:
        """The median over all turns of Farrier's latency over ONNX Runtime's, or None without
        both."""
        if self.farrier is None or self.peer is None:
            return None
        pairs = zip(self.farrier.turns, self.peer.turns, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    @property
    def best_ratio(self) -> float | None:
        """The ratio of the shortest runs, which other work on the machine disturbs least, or None
        without both."""
        if self.farrier is None or self.peer is None:
            return None
        return self.farrier.best / self.peer.best

    @property
    def is_wrong(self) -> bool:
        """True if Farrier failed, or its outputs differ from ONNX Runtime's."""
        differs = self.error is not None and not self.error <= self.tolerance
        return bool(self.failure) or differs


def race(model: OperatorModel, threads: int, effort: Effort, trials: int | None = None) -> Row:
    """Compile a model, compare its outputs with ONNX Runtime's, and time both engines in turns.

    With `trials`, Farrier's kernels are tuned first with that number of measured candidates.
    """
    data, inputs = model.build(), model.inputs()
    try:
        options = CompileOptions(threads=threads, trials=trials, verify=False)
        artifact = compile_model(data, options, name=model.op)
        session = artifact.session(threads)
        outputs = session.run(inputs)
    except FarrierError as error:
        return Row(model.name, failure=str(error.message))
    rules = tuple(kernel.rule for kernel in artifact.manifest.kernels)
    narrow = any(array.dtype == "f2" for array in outputs.values())
    row = Row(model.name, rules=rules, tolerance=_NARROW_TOLERANCE if narrow else TOLERANCE)
    runs: list[Run] = [lambda: session.run(inputs)]
    with contextlib.closing(session):
        peer = _peer(data, inputs, threads)
        if peer is not None:
            expected = dict(zip(outputs, peer(), strict=True))
            row = dataclasses.replace(row, error=_difference(outputs, expected))
            runs.append(peer)
        latencies = [] if row.is_wrong else _take_turns(runs, effort)
    if not latencies:
        return row
    return dataclasses.replace(
        row, farrier=latencies[0], peer=latencies[1] if len(latencies) > 1 else None
    )


def _difference(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Return the largest difference relative to the largest magnitude of its output. It is infinite
    if shapes differ, or if only one of two corresponding elements is NaN."""
    return max(_error(outputs[name], array) for name, array in expected.items())


def _error(output: Array, expected: Array) -> float:
    if output.shape != expected.shape:
        return np.inf
    wanted, actual = expected.astype(np.float64), output.astype(np.float64)
    differ = ~((wanted == actual) | (np.isnan(wanted) & np.isnan(actual)))
    if not differ.any():
        return 0.0
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0) or 1.0
    error = float(np.abs(wanted[differ] - actual[differ]).max() / largest)
    return np.inf if np.isnan(error) else error


def _peer(data: bytes, inputs: Mapping[str, Array], threads: int) -> Run | None:
    """Return a function that runs the model by ONNX Runtime; None if ONNX Runtime cannot run it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        session.run(None, inputs)
    except Exception:  # ONNX Runtime raises types of its own for what it lacks.
        return None
    return lambda: session.run(None, inputs)


def _take_turns(runs: list[Run], effort: Effort) -> list[Latency]:
    """Run the functions in turns, and return the latency of each."""
    counts = [_calls(run, effort.turn_s) for run in runs]
    samples: list[list[list[float]]] = [[] for _ in runs]
    for turn in range(effort.turns):
        order = range(len(runs)) if turn % 2 == 0 else reversed(range(len(runs)))
        for engine in order:
            time.sleep(_PAUSE_S)
            runs[engine]()  # The first run after a pause wakes threads and is not counted.
            samples[engine].append([_milliseconds(runs[engine]) for _ in range(counts[engine])])
    return [_latency(turns) for turns in samples]


def _calls(run: Run, seconds: float) -> int:
    """Return the number of calls of `run` that take about `seconds`, measured after a warm-up."""
    run()
    duration_s = max(min(_milliseconds(run) for _ in range(_FEWEST_CALLS)) / 1e3, 1e-6)
    return min(max(int(seconds / duration_s), _FEWEST_CALLS), _MOST_CALLS)


def _milliseconds(run: Run) -> float:
    start = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - start) / 1e6


def _latency(turns: list[list[float]]) -> Latency:
    samples = sorted(sample for turn in turns for sample in turn)
    return Latency(
        median=statistics.median(samples),
        best=samples[0],
        p10=samples[len(samples) // 10],
        p90=samples[len(samples) * 9 // 10],
        turns=tuple(statistics.median(turn) for turn in turns),
    )
