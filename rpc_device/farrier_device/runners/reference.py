"""A batch with its reference kernel, which is measured before and after the candidates.

The reference decides who is to blame for a failure. The candidates share a process with it, and a
candidate that writes outside its memory spoils the process for all that run later:

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
        """Return one result a candidate, or a fault. Raises the errors of `run`."""
        try:
            return MeasureResult(tuple(self._results(candidates, fresh=False)))
        except _FaultError as fault:
            return fault.result

    def _results(self, candidates: Sequence[Candidate], *, fresh: bool) -> list[CandidateResult]:
        """Return one result a candidate. Raises _FaultError."""
        run = self._run((self._reference, *candidates, self._reference), fresh)
        before, *results, after = run.results
        # The begins are counted in candidates.
        *begins, last = [max(begin - 1, 0) for begin in run.begins[1:]]
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
        return [outcome for half in halves for outcome in self._results(half, fresh=True)]

    def _doubt(
        self,
        candidates: Sequence[Candidate],
        results: list[CandidateResult],
        begin: int,
        index: int,
    ) -> None:
        """Measure a failed candidate once more, alone, if other candidates had run before it in its
        process, from `begin` on; if it succeeds, measure those again as well."""
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
    """The failure of a whole batch."""

    def __init__(self, result: MeasureResult) -> None:
        super().__init__(result.message)
        self.result = result


def _failing(reference: CandidateResult) -> _FaultError:
    message = f"the reference kernel, in a fresh process: {reference.status}: {reference.message}"
    return _FaultError(
        MeasureResult(fault=DeviceFault.BROKEN, blame=Blame.LIBRARY, message=message)
    )


def _spoiling(candidate: CandidateResult, reference: CandidateResult) -> CandidateResult:
    """Return the result of a candidate that makes the reference fail after it."""
    if candidate.status is not Status.OK:
        return candidate
    how = f"{reference.status}: {reference.message}" if reference.message else reference.status
    message = f"spoils its process: the reference kernel after it: {how}"
    return CandidateResult(Status.CRASHED, message=message)
