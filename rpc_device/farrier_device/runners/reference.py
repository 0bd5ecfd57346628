"""A batch around its reference kernel, which is measured before the candidates and after them.

It tells whose fault a failure is. The candidates share a process with the reference, and one that
writes where it should not spoils it for all that run there later:

    the reference fails, where other batches ran    measure again in a fresh process
    the reference fails, first in a fresh process   the device's fault, or the library's
    the reference fails only after candidates       one spoilt the process: measure by halves, each
                                                    in a fresh one, down to it
    a candidate fails, where others ran before      measure it again, alone in a fresh process, and
                                                    the others too, where it does well there
    the reference is right, but slower at the end   the device drifted
    the reference is right, and faster at the end   it had yet to wake up: nothing is lost
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from farrier_device.measurement import (
    Blame,
    Candidate,
    CandidateResult,
    DeviceFault,
    MeasureResult,
    Status,
)
from farrier_device.runners.supervisor import Run

Runs: TypeAlias = Callable[[Sequence[Candidate], bool], Run]
"""Measures candidates one after another; in a fresh process where the second argument is true."""


class AroundReference:
    def __init__(self, reference: Candidate, max_drift: float, run: Runs) -> None:
        self._reference = reference
        self._max_drift = max_drift
        self._run = run

    def measure(self, candidates: Sequence[Candidate]) -> MeasureResult:
        """One result a candidate, or a fault. Raises what `run` raises."""
        try:
            return MeasureResult(tuple(self._results(candidates, fresh=False)))
        except _FaultError as fault:
            return fault.result

    def _results(self, candidates: Sequence[Candidate], *, fresh: bool) -> list[CandidateResult]:
        """Raises _FaultError."""
        run = self._run((self._reference, *candidates, self._reference), fresh)
        before, *results, after = run.results
        *begins, last = [max(begin - 1, 0) for begin in run.begins[1:]]  # counted in candidates
        if before.status is not Status.OK:
            if fresh:
                raise _failing(before)
            return self._results(candidates, fresh=True)
        if after.status is Status.OK:
            self._check_drift(before, after)
        elif not fresh:
            results[last:] = self._results(candidates[last:], fresh=True)
        elif last == len(candidates):
            raise _failing(after)
        elif last == len(candidates) - 1:
            results[last] = _spoiling(results[last], after)
        else:
            results[last:] = self._halves(candidates[last:])
        for index in range(last if after.status is not Status.OK else len(results)):
            self._doubt(candidates, results, begins[index], index)
        return results

    def _halves(self, candidates: Sequence[Candidate]) -> list[CandidateResult]:
        middle = len(candidates) // 2
        halves = candidates[:middle], candidates[middle:]
        return [one for half in halves for one in self._results(half, fresh=True)]

    def _doubt(
        self,
        candidates: Sequence[Candidate],
        results: list[CandidateResult],
        begin: int,
        index: int,
    ) -> None:
        """Measure a candidate once more, alone, that failed in a process where others had run from
        `begin` on; and those, where it was not to blame."""
        if results[index].status is Status.OK or begin == index:
            return
        [results[index]] = self._results([candidates[index]], fresh=True)
        if results[index].status is Status.OK:
            results[begin:index] = self._results(candidates[begin:index], fresh=True)

    def _check_drift(self, before: CandidateResult, after: CandidateResult) -> None:
        drift = after.undisturbed_ns / max(before.undisturbed_ns, 1.0) - 1
        if drift > self._max_drift:
            message = f"the reference kernel's time moved by {drift:+.0%} during the batch"
            raise _FaultError(MeasureResult(fault=DeviceFault.DRIFTED, message=message))


class _FaultError(Exception):
    """The batch as a whole has failed."""

    def __init__(self, result: MeasureResult) -> None:
        super().__init__(result.message)
        self.result = result


def _failing(reference: CandidateResult) -> _FaultError:
    message = f"the reference kernel, in a fresh process: {reference.status}: {reference.message}"
    return _FaultError(
        MeasureResult(fault=DeviceFault.BROKEN, blame=Blame.LIBRARY, message=message)
    )


def _spoiling(candidate: CandidateResult, reference: CandidateResult) -> CandidateResult:
    """The result of a candidate after which alone the reference fails."""
    if candidate.status is not Status.OK:
        return candidate
    how = f"{reference.status}: {reference.message}" if reference.message else reference.status
    message = f"spoils its process: the reference kernel after it: {how}"
    return CandidateResult(Status.CRASHED, message=message)
