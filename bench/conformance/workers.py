"""Run each test in a separate process, so that a crash or a hang is the failure of a single
test."""

from __future__ import annotations

import collections
import dataclasses
import multiprocessing
import os
import signal
import tempfile
import time
import unittest
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from multiprocessing import connection
from typing import Any

from bench.conformance import kernels
from bench.conformance.cases import Case
from farrier.errors import (
    InvalidModelError,
    UnresolvedShapeError,
    UnsupportedOperatorError,
    UsageError,
)

# Errors with which Farrier refuses a model; any other error is a failure.
_REFUSALS = (InvalidModelError, UnresolvedShapeError, UnsupportedOperatorError, UsageError)


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"  # A wrong output, an error, a crash, or a hang.
    UNSUPPORTED = "unsupported"  # Refused with an error that names the unsupported construct.


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a test, and the reason if it did not pass."""

    verdict: Verdict
    reason: str = ""
    kernels: Mapping[str, int] = dataclasses.field(default_factory=dict)  # By space.


def judge(case: Case) -> Outcome:
    """Run a test in this process and return its outcome."""
    try:
        case.run()
    except _REFUSALS as error:
        return Outcome(Verdict.UNSUPPORTED, _words(error.message))
    except unittest.SkipTest as error:
        return Outcome(Verdict.UNSUPPORTED, f"skipped: {error}")
    except AssertionError as error:
        return Outcome(Verdict.FAILED, _difference(str(error)))
    except Exception as error:  # Any other error is this test's failure.
        return Outcome(Verdict.FAILED, _words(f"{type(error).__name__}: {error}"))
    return Outcome(Verdict.PASSED)


def run(
    cases: Sequence[Case],
    workers: int = 2,
    timeout_s: float = 60.0,
    progress: Callable[[Case, Outcome], None] = lambda case, outcome: None,
) -> dict[str, Outcome]:
    """Run tests in parallel worker processes, and return the outcomes by test name, in the order of
    `cases`.

    Workers are forked from this process, which has loaded the suite and must not run threads.
    """
    waiting = collections.deque(range(len(cases)))
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as home:
        os.environ["ONNX_HOME"] = home  # The suite writes the inputs of the light models there.
        busy = [_Worker(cases, timeout_s) for _ in range(min(workers, len(cases)))]
        for worker in busy:
            worker.start(waiting.popleft())
        while busy:
            pause = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
            connection.wait([worker.pipe for worker in busy], pause)
            for worker in list(busy):
                outcome = worker.outcome()
                if outcome is None:
                    continue
                outcomes[worker.case.name] = outcome
                progress(worker.case, outcome)
                if waiting:
                    worker.start(waiting.popleft())
                else:
                    worker.stop()
                    busy.remove(worker)
    return {case.name: outcomes[case.name] for case in cases}


class _Worker:
    """A worker process that runs tests one after another, replaced when it dies."""

    def __init__(self, cases: Sequence[Case], timeout_s: float) -> None:
        self._cases = cases
        self._context = multiprocessing.get_context("fork")
        self._timeout_s = timeout_s
        self._process: Any = None

    def start(self, number: int) -> None:
        """Start the test with that index in the list of cases."""
        if self._process is None:
            self.pipe, theirs = self._context.Pipe()
            self._process = self._context.Process(
                target=_serve, args=(self._cases, theirs), daemon=True
            )
            self._process.start()
            theirs.close()
        self.case = self._cases[number]
        self.deadline = time.monotonic() + self._timeout_s
        self.pipe.send(number)

    def outcome(self) -> Outcome | None:
        """Return the outcome of the current test; None while it runs."""
        if self.pipe.poll():
            try:
                received: Outcome = self.pipe.recv()
                return received
            except EOFError:
                self._process.join()
                code = self._process.exitcode
                self.stop()
                name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return Outcome(Verdict.FAILED, f"the process died: {name}")
        if time.monotonic() < self.deadline:
            return None
        self.stop()
        return Outcome(Verdict.FAILED, f"no answer after {self._timeout_s:g} s")

    def stop(self) -> None:
        """End the worker process, if there is one; the next test starts a new one."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def _serve(cases: Sequence[Case], pipe: connection.Connection) -> None:
    while True:
        outcome = judge(cases[pipe.recv()])
        pipe.send(dataclasses.replace(outcome, kernels=kernels.taken()))


def _words(text: str) -> str:
    """Return an error's text as a single line, shortened, without names that differ between
    runs."""
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:200]}…"


def _difference(text: str) -> str:
    """Return the lines of numpy's comparison report that state the differences, without the
    arrays."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [x for x in lines if x.startswith(("Mismatched", "Max relative", "Output"))]
    kept += [x for x in lines if x.endswith(("mismatch:", "mismatch)"))]
    return _words("; ".join(kept) or text)
