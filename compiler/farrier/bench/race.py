"""A race: engines in their own processes, outputs compared first, then rounds in turn."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.bench.engine import LOADERS
from farrier.errors import FarrierError, UsageError

Arrays = Mapping[str, npt.NDArray[Any]]

_LOAD_TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Entrant:
    """One engine with the file it loads: a .farrier artifact for `farrier`, else the ONNX file.

    `label` tells two artifacts apart, such as `farrier:untuned`; what stands before the colon is
    the engine.
    """

    label: str
    model: Path

    def __post_init__(self) -> None:
        if self.engine not in LOADERS:
            raise UsageError(
                f"unknown engine {self.engine!r}", hint=f"engines: {', '.join(LOADERS)}"
            )
        if importlib.util.find_spec(self.engine) is None:
            raise UsageError(f"{self.engine} is not installed", hint=f"pip install {self.engine}")

    @property
    def engine(self) -> str:
        return self.label.partition(":")[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """One engine's latencies in milliseconds, and how far its outputs are from the first's."""

    label: str
    version: str
    load_s: float
    median_ms: float
    best_ms: float
    p10_ms: float
    p90_ms: float
    ratio: float  # the first entrant's median over this one's, round by round, then the median
    max_error: float  # against the first entrant's outputs, over the range of this one's
    samples: int


def race(
    entrants: Sequence[Entrant],
    inputs: Arrays,
    *,
    threads: int,
    rounds: int = 15,
    round_s: float = 0.2,
) -> list[Figures]:
    """Runs every entrant on the same inputs, `rounds` times in turn, `round_s` seconds each."""
    with (
        tempfile.TemporaryDirectory(prefix="farrier-bench-") as folder,
        contextlib.ExitStack() as stack,
    ):
        np.savez(Path(folder) / "inputs.npz", **inputs)  # type: ignore[arg-type]
        lanes = [
            stack.enter_context(_Lane(entrant, Path(folder), index, threads))
            for index, entrant in enumerate(entrants)
        ]
        counts = [max(1, int(round_s / lane.time_one())) for lane in lanes]
        for _ in range(rounds):
            for lane, count in zip(lanes, counts, strict=True):
                lane.rounds.append(lane.run(count))
        return [lane.figures(lanes[0]) for lane in lanes]


class _Lane:
    """An entrant's process."""

    def __init__(self, entrant: Entrant, folder: Path, index: int, threads: int) -> None:
        self.entrant = entrant
        self.rounds: list[list[float]] = []
        self._outputs = folder / f"outputs-{index}.npz"
        self._errors = (folder / f"errors-{index}.txt").open("w+")
        arguments = (entrant.label, entrant.model, folder / "inputs.npz", self._outputs, threads)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "farrier.bench.engine", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> _Lane:
        try:
            words = self._answer().split()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._version, self._load_s = words[1], float(words[2])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, count: int) -> list[float]:
        """Milliseconds of each of `count` runs."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"run {count}\n")
        self._process.stdin.flush()
        return [int(word) / 1e6 for word in self._answer().split()]

    def time_one(self) -> float:
        """Seconds of one run, after a warm-up."""
        self.run(3)
        return statistics.median(self.run(3)) / 1e3

    def figures(self, first: _Lane) -> Figures:
        samples = sorted(sample for one in self.rounds for sample in one)
        ratios = [
            statistics.median(a) / statistics.median(b)
            for a, b in zip(first.rounds, self.rounds, strict=True)
        ]
        return Figures(
            label=self.entrant.label,
            version=self._version,
            load_s=self._load_s,
            median_ms=statistics.median(samples),
            best_ms=samples[0],
            p10_ms=samples[len(samples) // 10],
            p90_ms=samples[len(samples) * 9 // 10],
            ratio=statistics.median(ratios),
            max_error=_max_error(first._outputs, self._outputs),
            samples=len(samples),
        )

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait(_LOAD_TIMEOUT_S)
            self._errors.seek(0)
            tail = self._errors.read().strip().splitlines()[-1:] or ["no message"]
            raise FarrierError(f"{self.entrant.label} cannot run {self.entrant.model}: {tail[0]}")
        return line


def _max_error(ours: Path, theirs: Path) -> float:
    """max |difference| over the largest magnitude of their output, over all outputs."""
    worst = 0.0
    with np.load(ours) as a, np.load(theirs) as b:
        for name in b.files:
            if name not in a.files:
                return float("inf")
            expected = b[name].astype(np.float64)
            scale = float(np.abs(expected).max(initial=0.0)) or 1.0
            error = np.abs(a[name].astype(np.float64) - expected).max(initial=0.0)
            worst = max(worst, float(error) / scale)
    return worst
