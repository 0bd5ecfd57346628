"""The measurement of one candidate on a device: run it, compare its outputs, and time it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from farrier_device.arguments import Arguments
from farrier_device.blob import ArgumentError, Blob
from farrier_device.devices.device import AnyDevice, DeviceError, DeviceLostError
from farrier_device.measurement import Candidate, CandidateResult, Launch, Status, TimingPolicy

# The share of `timeout_s` that calls are planned for, so that a slow candidate ends with few
# samples instead of being killed with none.
_PLANNED = 0.9

# Pairs (calls, factor): a candidate that after that number of calls takes more than the factor
# times the time of another with the same expected outputs is timed no further. Short candidates
# first fill `_SHOWN_S`, until caches, branch predictors and the pool's threads have settled.
_RACE = ((2, 1.5), (16, 1.1), (32, 1.05))
_SHOWN_S = 0.002


class Candidates:
    """A measurer for the candidates of one batch, in sequence, on a device that has loaded their
    code.

    `started` is called just before a candidate's own code runs: from then on, the candidate is to
    blame if the process ends.
    """

    def __init__(self, device: AnyDevice, policy: TimingPolicy, blobs: Mapping[str, Blob]) -> None:
        self._device = device
        self._policy = policy
        self._blobs = blobs
        # The fewest ticks of a call, by the expected outputs.
        self._fastest: dict[tuple[str, ...], float] = {}

    def measure(
        self, candidate: Candidate, arguments: Arguments, started: Callable[[], None]
    ) -> CandidateResult:
        """Return the result of the candidate. The call does not return if the candidate hangs, and
        raises DeviceLostError if the candidate has made the device fail."""
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
        """Run launches once; return the failed result if one of them fails, otherwise None."""
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
        expected = tuple(argument.expected for argument in candidate.args if argument.expected)
        fastest = self._fastest.get(expected, math.inf)
        deadline = begin + _PLANNED * self._policy.timeout_s
        try:
            each = self._sample(steps, cold, deadline, call_s, fastest)
        except DeviceLostError:
            raise
        except DeviceError as failure:
            return CandidateResult(Status.CRASHED, message=f"{candidate.name} {failure}")
        # A kernel that relies on zeroed outputs is right only at the first call, so compare once
        # more.
        error = arguments.max_error(candidate, self._blobs)
        wrong = self._compared(error, "correct on the first call, but on a later one ")
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
        """Call the steps repeatedly; return, for each step, the ticks of each timed call. Sampling
        stops when the timing policy is fulfilled, whose `min_time_s` includes the cache flushes
        between calls. It stops earlier when the next call would exceed `deadline`, or when the
        candidate is clearly slower (`_RACE`) than `fastest`, the ticks of the fastest candidate so
        far."""
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
        """Return a failed result if the outputs' error is too large; None if the outputs are
        correct."""
        if error is None or error <= self._policy.tolerance:
            return None
        off = (
            f"off by {error:.3g} of the largest value, but the tolerance is "
            f"{self._policy.tolerance:g}"
        )
        return CandidateResult(Status.WRONG, max_error=error, message=prefix + off)


def _failed(names: str, code: int) -> CandidateResult:
    """Return the failed result of a candidate, one of whose launches returned a code other than
    0."""
    refuses = f", because its check {-1 - code} rejects the inputs" if code < 0 else ""
    return CandidateResult(Status.CRASHED, message=f"{names} returned {code}{refuses}", code=code)


def _affordable(deadline: float, call_s: float) -> int:
    """Return the number of calls of `call_s` seconds to make before the clock is read again: the
    number that fits in half of the time until `deadline`, because the machine may slow down. At
    least 1 if one call fits, otherwise at most 0."""
    fitting = int((deadline - time.monotonic()) / max(call_s, 1e-9))
    return min(fitting, max(1, fitting // 2))
