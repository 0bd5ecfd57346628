"""Race a compiled model with another engine on the same machine, round by round.

The engine has a process of its own (`farrier_device.rival`), which is stopped while it is not its
turn: engines keep threads spinning after a run. Whatever the engine does, that it cannot read the
model, hangs, dies or answers wrong, is a result about the engine, as is that it is not here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from farrier_device import describe, wire
from farrier_device.engines import DTYPES
from farrier_device.measurement import (
    CandidateResult,
    MeasureRequest,
    MeasureResult,
    Rival,
    RivalResult,
    Status,
    TimingPolicy,
)
from farrier_device.runners.files import BlobSource
from farrier_device.runners.supervisor import CancelledError
from farrier_device.sandbox import Limits, SandboxedProcess, SandboxError

_CHILD = "farrier_device.rival"
WALLS = "seccomp+landlock"  # without which no engine is started
_WIRE_TIMEOUT_S = 10.0  # for the rest of a frame that has begun
_GLANCE_S = 0.2  # how often to look whether the batch was cancelled
_EXIT_S = 1.0
_MOST_FRAME = 1 << 20
_MOST_RUNS = 200  # of a round
_MOST_ROUNDS = 50
_MOST_S = 120.0  # whatever is asked for: other batches wait meanwhile
_SLOW_S = 0.5  # of one run: no more of it than needed
_MOST_TEXT = 500
_MODEL = "model.onnx"

Ours: TypeAlias = Callable[[TimingPolicy], CandidateResult]
"""Runs the candidate as a policy says, and compares it."""


class _EngineError(Exception):
    """What is to be said of an engine that is not timed, or no more."""


@dataclasses.dataclass(frozen=True, slots=True)
class Engines:
    """Other engines that an operator lets models run on: their versions by name. Models lie in
    `folder` meanwhile; no engine reads what is at or below one of the `secrets`."""

    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    folder: Path | None = None  # beside the blobs: a model's files are links to them
    secrets: tuple[Path, ...] = ()

    def clear(self) -> None:
        """Remove what a process that was killed left in the folder."""
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
    """The candidate's result, and the engine's. Raises CancelledError, and what `ours` does."""
    rounds: list[tuple[CandidateResult, tuple[int, ...]]] = []
    told = RivalResult(rival.engine, engines.versions.get(rival.engine, ""))
    try:
        if not told.version:
            raise _EngineError("this device runs no such engine")
        with _model(rival, engines, blobs) as model:
            lane = _Lane(rival, engines, model, request.policy.threads, pin, cancelled)
            with contextlib.closing(lane):
                load_s, error = lane.load(blobs)
                told = dataclasses.replace(told, load_s=load_s, max_error=error)
                _check_error(error, rival.tolerance)
                for one in _rounds(request, rival, lane, ours):
                    rounds.append(one)
    except _EngineError as failure:
        told = dataclasses.replace(told, message=str(failure)[:_MOST_TEXT])
        rounds = []
    if not rounds:
        return unraced(request, told)
    told = dataclasses.replace(
        told,
        rounds_ns=tuple(theirs for _, theirs in rounds),
        ours_ns=tuple(own.samples_ns for own, _ in rounds),
    )
    samples = tuple(ns for one in told.ours_ns for ns in one)
    return MeasureResult((dataclasses.replace(rounds[0][0], samples_ns=samples),), rival=told)


def unraced(request: MeasureRequest, told: RivalResult) -> MeasureResult:
    """The result of a race that did not take place; the message says why."""
    untried = CandidateResult(Status.REJECTED, message=f"no race: {told.message}")
    return MeasureResult((untried,) * len(request.candidates), rival=told)


def _rounds(
    request: MeasureRequest, rival: Rival, lane: _Lane, ours: Ours
) -> Iterator[tuple[CandidateResult, tuple[int, ...]]]:
    """Rounds in turn, each other one backwards, until there are enough or the time is over."""
    policy = dataclasses.replace(
        request.policy,
        warmup=1,
        min_repeats=1,
        max_repeats=_MOST_RUNS,
        min_time_s=rival.round_s,
        timeout_s=max(1.0, lane.left_s()),
    )
    first = statistics.median(lane.run(1)) / 1e9
    count = max(1, min(_MOST_RUNS, int(rival.round_s / max(first, 1e-9))))
    if first <= _SLOW_S:  # the first runs of an engine are slower than later ones
        again = statistics.median(lane.run(min(count, 3))) / 1e9
        count = max(1, min(_MOST_RUNS, int(rival.round_s / max(again, 1e-9))))
    longest = 0.0
    for number in range(min(rival.rounds, _MOST_ROUNDS)):
        begin = time.monotonic()
        if number and lane.left_s() < 2 * longest:
            return
        if number % 2:
            theirs = lane.run(count)
            own = _own(ours, policy)
        else:
            own = _own(ours, policy)
            theirs = lane.run(count)
        yield own, theirs
        longest = max(longest, time.monotonic() - begin)


def _own(ours: Ours, policy: TimingPolicy) -> CandidateResult:
    result = ours(policy)
    if result.status is not Status.OK:
        raise _EngineError(f"the compiled model beside it {result.status}: {result.message}")
    return result


def _check_error(error: float | None, tolerance: float) -> None:
    if error is not None and not error <= tolerance:
        raise _EngineError(
            f"its outputs differ by {error:.1e} of their range, and {tolerance:.1e} is allowed: "
            "it is not timed"
        )


class _Lane:
    """An engine's process in a race. Every method raises _EngineError for what it does, and
    CancelledError."""

    def __init__(
        self,
        rival: Rival,
        engines: Engines,
        model: Path,
        threads: int,
        pin: bool,
        cancelled: threading.Event,
    ) -> None:
        self._rival = rival
        self._model = model
        self._threads = threads
        self._cpus = list(describe.available_cpus()[:threads]) if pin else []
        self._cancelled = cancelled
        self._timeout_s = min(rival.timeout_s, _MOST_S)
        self._deadline = time.monotonic() + self._timeout_s
        for tensor in (*rival.inputs, *rival.outputs):
            if tensor.dtype not in DTYPES:
                raise _EngineError(f"{tensor.name} is of {tensor.dtype}, which is not raced")
        machine = Limits.of_machine()
        limits = dataclasses.replace(machine, cpu_s=int(threads * self._timeout_s) + 10)
        words = [
            _packages(),
            json.dumps([str(path) for path in engines.secrets]),
            str(model.parent),
        ]
        try:
            self._process = SandboxedProcess(
                _CHILD, limits, required=WALLS, name=f"the process of {rival.engine}", words=words
            )
        except SandboxError as error:
            raise _EngineError(str(error)) from None

    def load(self, blobs: BlobSource) -> tuple[float, float | None]:
        """Seconds until the first outputs, and how far these are off."""
        rival = self._rival
        tensors = (*rival.inputs, *rival.outputs)
        order = {
            "engine": rival.engine,
            "model": str(self._model),
            "threads": self._threads,
            "cpus": self._cpus,
            "inputs": [_shown(tensor) for tensor in rival.inputs],
            "outputs": [_shown(tensor) for tensor in rival.outputs],
        }
        with contextlib.ExitStack() as opened:
            files = []
            try:
                for tensor in tensors:
                    files.append(os.open(blobs.path(tensor.blob), os.O_RDONLY | os.O_CLOEXEC))
                    opened.callback(os.close, files[-1])
            except (OSError, LookupError) as error:
                raise _EngineError(f"what it is to be given cannot be read: {error}") from None
            answer = self._asked(order, files)
        match answer:
            case {"load_s": float(load_s), "max_error": float(off)}:
                return load_s, off
            case {"load_s": float(load_s), "max_error": None}:  # there are no outputs
                return load_s, None
        raise self._nonsense(answer)

    def run(self, count: int) -> tuple[int, ...]:
        """Nanoseconds of so many runs, after two that are not counted if there are several."""
        answer = self._asked({"warmup": 2 * (count > 1), "count": count})
        match answer:
            case {"samples": list(samples)} if len(samples) == count and all(
                type(ns) is int and ns > 0 for ns in samples
            ):
                return tuple(samples)
        raise self._nonsense(answer)

    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def close(self) -> None:
        self._process.kill()

    def _asked(self, message: dict[str, Any], files: Sequence[int] = ()) -> dict[str, Any]:
        """The answer, after which the process stands still."""
        process = self._process
        process.go_on()
        process.sock.settimeout(_WIRE_TIMEOUT_S)
        try:
            wire.send(process.sock, message)
            wire.send_files(process.sock, files)
            self._await()
            answer = wire.receive(process.sock, _MOST_FRAME, _WIRE_TIMEOUT_S)
        except wire.ClosedError:
            raise _EngineError(self._end()) from None
        except TimeoutError:
            raise _EngineError(
                f"it did not end within the {self._timeout_s:g} s that a race may take"
            ) from None
        except wire.WireError as error:
            raise _EngineError(f"its process answered with nonsense: {error}") from None
        process.stop()
        if type(failed := answer.get("failed")) is str:
            raise _EngineError(f"it cannot run the model: {failed}")
        return answer

    def _await(self) -> None:
        poll = select.poll()
        poll.register(self._process.sock, select.POLLIN)
        while not self._cancelled.is_set():
            left = self.left_s()
            if left <= 0:
                raise TimeoutError
            if poll.poll(1000 * min(left, _GLANCE_S)):
                return
        raise CancelledError

    def _end(self) -> str:
        code = self._process.wait(_EXIT_S)
        said = self._process.said() if code is not None and code > 0 else ""
        how = f"its process was ended: {self._process.kill()}"
        return f"{how}: {said.splitlines()[-1]}" if said else how

    def _nonsense(self, answer: dict[str, Any]) -> _EngineError:
        return _EngineError(f"its process answered with nonsense: {str(answer)[:100]}")


@contextlib.contextmanager
def _model(rival: Rival, engines: Engines, blobs: BlobSource) -> Iterator[Path]:
    """The model's file, its data beside it where it says. Raises _EngineError."""
    if engines.folder is not None:
        engines.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="farrier-model-", dir=engines.folder))
    try:
        yield _laid_out(rival, blobs, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _laid_out(rival: Rival, blobs: BlobSource, folder: Path) -> Path:
    name = _MODEL
    taken = {PurePosixPath(location).parts[:1] for location, _ in rival.files}
    while (name,) in taken:
        name = f"_{name}"
    try:
        for location, sha256 in rival.files:
            _check_location(location)
            _link(Path(blobs.path(sha256)), folder / (location or name))
    except (OSError, LookupError) as error:
        raise _EngineError(f"the model cannot be laid out: {error}") from None
    return folder / name


def _check_location(location: str) -> None:
    """Raises _EngineError for what is no relative path that stays below where it starts."""
    path = PurePosixPath(location)
    if "\0" in location or path.is_absolute() or ".." in path.parts:
        raise _EngineError(f"the model names a file outside of its folder: {location[:100]!r}")


def _link(blob: Path, place: Path) -> None:
    """Another name for a blob's bytes, or a copy where it lies on another disk. The engine's
    process reads below the folder, and no link leads out of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(blob, place)
    except OSError:
        shutil.copyfile(blob, place)


def _shown(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _packages() -> str:
    """The folders in which packages are installed, as JSON, for a process without `site`."""
    names = ("site-packages", "dist-packages")
    return json.dumps([path for path in sys.path if Path(path).name in names])
