"""ONNX's backend suite on arm64: each test is compiled here, run on the emulated machine, and
judged here.

Each worker process has an emulated Python, which runs the artifacts of the worker's tests. Expected
outputs and tolerances are those of the suite. docs/reference/conformance.md lists the tests that
pass on x86-64.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from bench.boards import board
from bench.boards.arrays import Arrays
from bench.boards.guest import Guest, exchange
from bench.boards.root import Root
from bench.conformance import cases, page, workers
from bench.conformance.workers import Outcome, Verdict
from farrier.runtime.artifact import Artifact

# The time limit of a test, which includes starting a Python for a worker's first one.
_TIMEOUT_S = 300.0
_PROGRESS = 100  # tests


def check(
    root: Root, pattern: str, every: int, count: int, say: Callable[[str], None]
) -> dict[str, Outcome]:
    """Run every `every`-th of the tests that match `pattern`, in `count` workers. Report, and
    return by name, the outcomes of tests that fail on arm64 but pass on x86-64."""
    with exchange() as folder:
        return _check(_Guests(root, folder), pattern, every, count, say)


def _check(
    guests: _Guests, pattern: str, every: int, count: int, say: Callable[[str], None]
) -> dict[str, Outcome]:
    chosen = [
        case for case in cases.load(board.TARGET, guests.run) if re.search(pattern, case.name)
    ][::every]
    not_passed = page.not_passed(page.PAGE.read_text())
    worse: dict[str, Outcome] = {}
    done = 0

    def progress(case: cases.Case, outcome: Outcome) -> None:
        nonlocal done
        done += 1
        if outcome.verdict is not Verdict.PASSED and case.name not in not_passed:
            worse[case.name] = outcome
            say(f"{case.name}: {outcome.verdict}: {outcome.reason}")
        if done % _PROGRESS == 0:
            say(f"{done} of {len(chosen)}")

    outcomes = workers.run(chosen, count, _TIMEOUT_S, progress)
    about = [case.suite for case in chosen]
    verdicts = [outcomes[case.name].verdict for case in chosen]
    say("\n".join(page.table(about, verdicts, "suite")))
    return worse


class _Guests:
    """An emulated Python for each worker process. Workers must not share one, because they would
    read each other's answers. It ends with the worker, when its stdin closes."""

    def __init__(self, root: Root, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._of: dict[int, Guest] = {}

    def run(self, artifact: Artifact, inputs: Arrays) -> Arrays:
        """Return the outputs of an artifact, run by this process's emulated Python."""
        own = self._of.get(os.getpid())
        if own is None:
            folder = self._folder / str(os.getpid())
            folder.mkdir()
            own = self._of[os.getpid()] = Guest(self._root, folder)
        return own.run(artifact, inputs)
