"""Measuring one candidate on a device: run it, compare what it wrote, time it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farrier_device.arguments import Arguments
from farrier_device.blob import ArgumentError, Blob
from farrier_device.devices.device import AnyDevice, DeviceError, DeviceLostError
from farrier_device.measurement import Candidate, CandidateResult, Launch, Status, TimingPolicy

# The part of `timeout_s` that calls are planned for, so that a slow candidate ends with few samples
# and is not killed with none.
_PLANNED = 0.9

# A candidate that after so many calls takes so many times as long as another that computes the same
# is timed no further; but short ones fill the time until caches, branch predictors and the pool's
# threads have come to rest.
_RACE = ((2, 1.5), (16, 1.1), (32, 1.05))
_SHOWN_S = 0.002


class Candidates:
    """Measures the candidates of one batch, one after another, on a device that has their code.

    `started` is called when a candidate's own code is about to run: whatever happens to the process
    from then on is the candidate's doing.
    """

    def __init__(self, device: AnyDevice, policy: TimingPolicy, blobs: Mapping[str, Blob]) -> None:
        self._device = device
        self._policy = policy
        self._blobs = blobs
        self._fastest: dict[tuple[str, ...], float] = {}  # Ticks, by what is expected.

    def measure(
        self, candidate: Candidate, arguments: Arguments, started: Callable[[], None]
    ) -> CandidateResult:
        """Return how the candidate did; do not return if it hangs. Raises DeviceLostError if it has
        ended the device."""
        try:
            arguments.fill(candidate, self._blobs)
            prepare, run, parts = (
                [(launch, arguments.bound(candidate, launch)) for launch in launches]
                for launches in (candidate.prepare, candidate.launches, candidate.parts)
            )
        except (DeviceError, ArgumentError, MemoryError) as unfit:
            return CandidateResult(Status.REJECTED, message=str(unfit))
        started()
        begin = time.monotonic()
        if (failed := self._run(prepare)) is not None:
            return failed
        first = time.monotonic()
        if (failed := self._run(run)) is not None:
            return failed
        call_s = time.monotonic() - first
        try:
            error = arguments.max_error(candidate, self._blobs)
        except DeviceError as unfit:
            return CandidateResult(Status.REJECTED, message=str(unfit))
        if (wrong := self._compared(error)) is not None:
            return wrong
        return self._timed(candidate, arguments, [step for _, step in parts or run], begin, call_s)

    def _run(self, steps: Sequence[tuple[Launch, Any]]) -> CandidateResult | None:
        """Run launches to their end; return how they failed, None if they did not."""
        for _, bound in steps:
            self._device.launch(bound)
        if not (code := self._device.synchronize()):
            return None
        return _failed(", ".join(launch.symbol for launch, _ in steps), code)

    def _timed(
        self,
        candidate: Candidate,
        arguments: Arguments,
        steps: Sequence[Any],
        begin: float,
        call_s: float,
    ) -> CandidateResult:
        cold = arguments.cold(candidate)
        expected = tuple(one.expected for one in candidate.args if one.expected)
        fastest = self._fastest.get(expected, math.inf)
        deadline = begin + _PLANNED * self._policy.timeout_s
        try:
            each = self._sample(steps, cold, deadline, call_s, fastest)
        except DeviceLostError:
            raise
        except DeviceError as failure:
            return CandidateResult(Status.CRASHED, message=f"{candidate.name} {failure}")
        # Once more: a kernel that counts on its outputs being zero is right the first time only.
        error = arguments.max_error(candidate, self._blobs)
        wrong = self._compared(error, "right on the first call, but on a later one ")
        if wrong is not None:
            return wrong
        if expected:
            self._fastest[expected] = min(*map(sum, zip(*each, strict=True)), fastest)
        parts = tuple(tuple(self._device.ns_of(ticks)) for ticks in each)
        samples = tuple(map(sum, zip(*parts, strict=True)))
        return CandidateResult(Status.OK, samples, error, parts_ns=parts if candidate.parts else ())

    def _sample(
        self,
        steps: Sequence[Any],
        cold: Sequence[tuple[Any, int]],
        deadline: float,
        call_s: float,
        fastest: float,
    ) -> list[list[int]]:
        """Return the ticks of each step of each timed call, until the policy is content, the next
        call would pass the deadline, or the race with the `fastest` candidate, whose fastest call
        took so many ticks, is lost. `min_time_s` counts the flushes between the calls too."""
        policy = self._policy
        warmup = min(policy.warmup, _affordable(deadline, call_s) - 1)
        if warmup > 0:
            self._device.time(steps, warmup, ())
        each: list[list[int]] = [[] for _ in steps]
        done = 0
        begin = time.monotonic()
        repeats = min(policy.min_repeats, policy.max_repeats, max(_affordable(deadline, call_s), 1))
        while repeats > 0:
            repeats = min([repeats, *(calls - done for calls, _ in _RACE if calls > done)])
            for samples, more in zip(each, self._device.time(steps, repeats, cold), strict=True):
                samples += more
            elapsed = time.monotonic() - begin
            done = len(each[0])
            call_s = elapsed / done
            wanted = max(
                policy.min_repeats - done, math.ceil((policy.min_time_s - elapsed) / call_s)
            )
            bar = min((times for calls, times in _RACE if calls <= done), default=math.inf)
            if min(map(sum, zip(*each, strict=True))) > bar * fastest:
                wanted = min(wanted, math.ceil((_SHOWN_S - elapsed) / call_s))
            repeats = min(wanted, policy.max_repeats - done, _affordable(deadline, call_s))
        return each

    def _compared(self, error: float | None, prefix: str = "") -> CandidateResult | None:
        """The verdict on outputs that are off by `error`: None where they are right."""
        if error is None or error <= self._policy.tolerance:
            return None
        off = f"off by {error:.3g} of the largest value, tolerance {self._policy.tolerance:g}"
        return CandidateResult(Status.WRONG, max_error=error, message=prefix + off)


def _failed(names: str, code: int) -> CandidateResult:
    """Return the result of a candidate of which a launch returned a code other than 0."""
    refuses = f", so its check {-1 - code} refuses the inputs" if code < 0 else ""
    return CandidateResult(Status.CRASHED, message=f"{names} returned {code}{refuses}", code=code)


def _affordable(deadline: float, call_s: float) -> int:
    """How many calls of `call_s` to make in one go: those that fill half of the time left, as the
    machine may slow down meanwhile, or the one that fits."""
    fitting = int((deadline - time.monotonic()) / max(call_s, 1e-9))
    return min(fitting, max(1, fitting // 2))
