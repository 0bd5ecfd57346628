"""The measurement of a batch with a reference kernel, which runs before and after the candidates.

The result of the reference determines the cause of a failure. The candidates share a process with
the reference, and a candidate that writes outside of its memory corrupts the process for all that
run later:

    the reference fails after earlier batches      measure again in a fresh process
    the reference fails first in a fresh process    the device or the library is at fault
    the reference fails only after candidates       a candidate corrupted the process: measure
                                                    halves of the batch, each in a fresh process,
                                                    until that candidate is identified
    a candidate fails after other candidates        measure it again, alone in a fresh process; if
                                                    it succeeds there, also measure the others again
    the reference is right, but slower at the end   the speed of the device has drifted
    the reference is right, and faster at the end   the device was not at full speed at first; the
                                                    results are kept
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
        """Return one result per candidate, or a fault. Raises the errors of `run`."""
        try:
            return MeasureResult(tuple(self._results(candidates, fresh=False)))
        except _FaultError as fault:
            return fault.result

    def _results(self, candidates: Sequence[Candidate], *, fresh: bool) -> list[CandidateResult]:
        """Run the reference, the candidates, and the reference again; return one result per
        candidate, repeating measurements as the module describes. With `fresh`, they run in a
        process that has run no other code. Raises _FaultError."""
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
        """Measure candidate `index` again, alone in a fresh process, if it failed after other
        candidates in the same process; `begin` is the first of these candidates. If it succeeds
        alone, one of the others had corrupted the process, so also measure them again. `results` is
        updated."""
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
    """The failure of a whole batch, with its kind and cause."""

    def __init__(self, result: MeasureResult) -> None:
        super().__init__(result.message)
        self.result = result


def _failing(reference: CandidateResult) -> _FaultError:
    message = (
        f"the reference kernel failed in a fresh process: {reference.status}: {reference.message}"
    )
    return _FaultError(
        MeasureResult(fault=DeviceFault.BROKEN, blame=Blame.LIBRARY, message=message)
    )


def _spoiling(candidate: CandidateResult, reference: CandidateResult) -> CandidateResult:
    """Return the failed result of a candidate after which the reference kernel fails, as its result
    `reference` shows. If `candidate` has failed already, return it unchanged."""
    if candidate.status is not Status.OK:
        return candidate
    how = f"{reference.status}: {reference.message}" if reference.message else reference.status
    message = f"breaks its process: the reference kernel failed after it: {how}"
    return CandidateResult(Status.CRASHED, message=message)
