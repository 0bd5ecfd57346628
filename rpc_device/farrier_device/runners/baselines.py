"""Races between a compiled model and another inference engine on the same machine, in alternating
rounds.

The engine runs in a sandboxed process of its own (`baseline/enclosed.py`). Any failure of the
engine is a result: that it is missing, cannot read the model, hangs, dies or computes wrong
outputs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from farrier_device import describe
from farrier_device.baseline import enclosed
from farrier_device.baseline.engines import ENGINES
from farrier_device.baseline.lane import EngineError, Lane, Loaded, Order
from farrier_device.baseline.turns import runs_of_a_round, turns
from farrier_device.closing import Closing
from farrier_device.measurement import (
    CandidateResult,
    MeasureRequest,
    MeasureResult,
    Rival,
    RivalResult,
    Status,
    Tensor,
    TimingPolicy,
)
from farrier_device.runners.files import BlobSource
from farrier_device.runners.model_folder import laid_out
from farrier_device.runners.supervisor import CancelledError
from farrier_device.sandbox import Limits, SandboxedProcess, SandboxError

WALLS = "seccomp+landlock"  # No engine is started without them.
_EXIT_S = 1.0
_MOST_RUNS = 200  # of a round
_MOST_ROUNDS = 50
_MOST_S = 120.0  # Other batches wait meanwhile, so no race takes longer.
_WARMUP = 2  # An engine runs as often before each round.
_MOST_TEXT = 500
# The types of inputs and outputs that every numpy has, as it writes them.
_DTYPES = {
    "bool": "?", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "u8": "u1", "u16": "<u2",
    "u32": "<u4", "u64": "<u8", "f16": "<f2", "f32": "<f4", "f64": "<f8",
}  # fmt: skip

T = TypeVar("T")
Ours: TypeAlias = Callable[[TimingPolicy], CandidateResult]
"""Runs the candidate as a policy says, and compares it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Engines:
    """The inference engines that an operator permits to run models: their versions by name. The
    files of a model are placed in `folder`, which must be on the same disk as the blobs, because
    the files are hard links to them. No engine can read a path of `secrets`, or a file below it."""

    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folder: Path | None = None
    secrets: tuple[Path, ...] = ()

    def clear(self) -> None:
        """Remove the files that a killed process has left in the folder."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def race(
    request: MeasureRequest,
    rival: Rival,
    engines: Engines,
    blobs: BlobSource,
    ours: Ours,
    cancelled: threading.Event,
    *,
    pin: bool,
) -> MeasureResult:
    """Race the candidate of a request against the inference engine of `rival`, and return the times
    of both. `ours` measures a round of the candidate. A failure of the engine is described in the
    result. Raises CancelledError, and the exceptions of `ours`."""
    raced: list[list[CandidateResult]] = []
    theirs = RivalResult(rival.engine, engines.versions.get(rival.engine, ""))
    try:
        if not theirs.version:
            raise EngineError("this device does not have the engine")
        with (
            laid_out(rival, engines.folder, blobs) as model,
            _Racer(rival, engines, model, request.policy.threads, cancelled) as racer,
        ):
            loaded = racer.load(blobs, pin)
            theirs = dataclasses.replace(theirs, load_s=loaded.load_s, max_error=loaded.max_error)
            _check_error(loaded.max_error, rival.tolerance)
            raced += _turns(request.policy, rival, racer, ours)
    except EngineError as failure:
        theirs = dataclasses.replace(theirs, message=str(failure)[:_MOST_TEXT])
        raced = []
    if not raced:
        return unraced(request, theirs)
    theirs = dataclasses.replace(
        theirs,
        rounds_ns=tuple(other.samples_ns for _, other in raced),
        ours_ns=tuple(own.samples_ns for own, _ in raced),
    )
    samples = tuple(ns for samples in theirs.ours_ns for ns in samples)
    own = dataclasses.replace(raced[0][0], samples_ns=samples)
    return MeasureResult((own,), rival=theirs)


def unraced(request: MeasureRequest, theirs: RivalResult) -> MeasureResult:
    """Return the result for a race that did not take place; `theirs.message` is the reason."""
    untried = CandidateResult(Status.REJECTED, message=f"not compared: {theirs.message}")
    return MeasureResult((untried,) * len(request.candidates), rival=theirs)


def _turns(
    policy: TimingPolicy, rival: Rival, racer: _Racer, ours: Ours
) -> Iterator[list[CandidateResult]]:
    """Yield turns: a pair of the results of a round of the candidate and a round of the engine.
    Stop after `rival.rounds` turns, or when the remaining time is too short for another turn."""
    policy = dataclasses.replace(
        policy,
        warmup=1,
        min_repeats=1,
        max_repeats=_MOST_RUNS,
        min_time_s=rival.round_s,
        timeout_s=max(1.0, racer.left_s()),
    )
    count = runs_of_a_round(
        lambda runs: statistics.median(racer.run(runs)) / 1e9, rival.round_s, _MOST_RUNS
    )
    race = turns(
        [
            lambda: _own(ours, policy),
            lambda: CandidateResult(Status.OK, samples_ns=racer.run(count)),
        ]
    )
    longest = 0.0
    for number in range(min(rival.rounds, _MOST_ROUNDS)):
        begin = time.monotonic()
        if number and racer.left_s() < 2 * longest:
            return
        yield next(race)
        longest = max(longest, time.monotonic() - begin)


def _own(ours: Ours, policy: TimingPolicy) -> CandidateResult:
    result = ours(policy)
    if result.status is not Status.OK:
        raise EngineError(f"the compiled model failed ({result.status}): {result.message}")
    return result


def _check_error(error: float | None, tolerance: float) -> None:
    if error is not None and not error <= tolerance:
        raise EngineError(
            f"the engine's outputs differ by {error:.1e} of their range, but only "
            f"{tolerance:.1e} is allowed; it is not timed"
        )


class _Racer(Closing):
    """A sandboxed engine that must finish by a deadline. Every method raises EngineError for a
    failure of the engine, and CancelledError."""

    def __init__(
        self,
        rival: Rival,
        engines: Engines,
        model: Path,
        threads: int,
        cancelled: threading.Event,
    ) -> None:
        self._rival = rival
        self._model = model
        self._threads = threads
        self._cancelled = cancelled
        self._timeout_s = min(rival.timeout_s, _MOST_S)
        self._deadline = time.monotonic() + self._timeout_s
        for tensor in (*rival.inputs, *rival.outputs):
            if tensor.dtype not in _DTYPES:
                raise EngineError(
                    f"{tensor.name} is of type {tensor.dtype}, which cannot "
                    "be sent to another engine"
                )
        limits = dataclasses.replace(Limits.of_machine(), cpu_s=int(threads * self._timeout_s) + 10)
        secrets = json.dumps([str(path) for path in engines.secrets])
        try:
            self._process = SandboxedProcess(
                enclosed.__name__,
                limits,
                required=WALLS,
                name=f"the process of {rival.engine}",
                words=[_packages(), secrets, str(model.parent)],
            )
        except SandboxError as error:
            raise EngineError(str(error)) from None
        self._lane = Lane(self._process, ended=self._end, glance=self._glance)

    def load(self, blobs: BlobSource, pin: bool) -> Loaded:
        """Have the engine load the model, run it once and compare its outputs with the expected
        ones; return its answer."""
        rival = self._rival
        order = Order(
            ENGINES[rival.engine],
            self._model,
            self._threads,
            inputs=[_described(tensor) for tensor in rival.inputs],
            expected=[_described(tensor) for tensor in rival.outputs],
            cpus=describe.available_cpus()[: self._threads] if pin else (),
        )
        with contextlib.ExitStack() as opened:
            files = []
            try:
                for tensor in (*rival.inputs, *rival.outputs):
                    files.append(os.open(blobs.path(tensor.blob), os.O_RDONLY | os.O_CLOEXEC))
                    opened.callback(os.close, files[-1])
            except (OSError, LookupError) as error:
                raise EngineError(f"cannot read the engine's inputs and outputs: {error}") from None
            return self._in_time(lambda left_s: self._lane.load(order, files, left_s))

    def run(self, count: int) -> tuple[int, ...]:
        """Return the nanoseconds of each of `count` runs. If `count` is more than 1, some untimed
        runs precede them."""
        warmup = _WARMUP if count > 1 else 0
        return self._in_time(lambda left_s: self._lane.run(count, warmup, left_s))

    def left_s(self) -> float:
        """Return the seconds until the deadline of the race."""
        return self._deadline - time.monotonic()

    def close(self) -> None:
        self._process.kill()

    def _in_time(self, ask: Callable[[float], T]) -> T:
        try:
            return ask(self.left_s())
        except TimeoutError:
            raise EngineError(
                f"the engine did not finish within the {self._timeout_s:g} s that a comparison "
                "may take"
            ) from None

    def _glance(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError

    def _end(self) -> str:
        code = self._process.wait(_EXIT_S)
        words = self._process.said() if code is not None and code > 0 else ""
        how = f"the engine's process ended: {self._process.kill()}"
        return f"{how}: {words.splitlines()[-1]}" if words else how


def _described(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape)}


def _packages() -> str:
    """Return the folders of installed packages, as JSON, for a Python process that runs without the
    module `site`."""
    names = ("site-packages", "dist-packages")
    return json.dumps([path for path in sys.path if Path(path).name in names])
