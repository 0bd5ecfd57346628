"""One test of ONNX's backend suite for each operator that docs/reference/conformance.md lists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.conformance import cases, page, workers
from bench.conformance.workers import Outcome, Verdict

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_test_of_every_operator_passes():
    listed = page.not_passed(page.PAGE.read_text())
    chosen = {}
    for case in cases.load():
        if case.suite == "node" and case.name not in listed:
            chosen.setdefault(case.operator, case.name)
    assert len(chosen) > 100
    pattern = f"^({'|'.join(chosen.values())})$"
    command = [sys.executable, "-m", "bench.conformance", "-k", pattern]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    total = re.search(r"^\| all \| (\d+) \| 0 \| 0 \|", done.stdout, re.MULTILINE)
    assert total is not None
    assert int(total[1]) == len(chosen)


def _case(name, run):
    return cases.Case(name, "node", "Op", run)


def _refuse():
    from farrier.errors import UnsupportedOperatorError

    raise UnsupportedOperatorError("no such\noperator")


def _differ():
    import numpy as np

    np.testing.assert_allclose(np.zeros(3), np.ones(3))


def _crash():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def _hang():
    import time

    time.sleep(60)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_crash_or_a_hang_is_the_failure_of_one_test(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))  # A run sets it, and the test restores it.
    chosen = [
        _case("test_crash", _crash),
        _case("test_refused", _refuse),
        _case("test_hang", _hang),
        _case("test_differs", _differ),
        _case("test_error", lambda: 1 / 0),
        _case("test_fine", lambda: None),
    ]
    outcomes = workers.run(chosen, workers=2, timeout_s=1.0)
    assert list(outcomes) == [case.name for case in chosen]
    assert outcomes.pop("test_differs").reason.startswith("Mismatched elements: 3 / 3 (100%)")
    assert outcomes == {
        "test_crash": Outcome(Verdict.FAILED, "the process died: SIGKILL"),
        "test_refused": Outcome(Verdict.UNSUPPORTED, "no such operator"),
        "test_hang": Outcome(Verdict.FAILED, "no answer after 1 s"),
        "test_error": Outcome(Verdict.FAILED, "ZeroDivisionError: division by zero"),
        "test_fine": Outcome(Verdict.PASSED),
    }


def test_the_page_lists_what_did_not_pass():
    chosen = [_case(f"test_{i}", lambda: None) for i in range(4)]
    reasons = [Outcome(Verdict.PASSED), *[Outcome(Verdict.FAILED, "a|b")] * 2]
    outcomes = dict(
        zip((c.name for c in chosen), [*reasons, Outcome(Verdict.UNSUPPORTED, "c")], strict=True)
    )
    text = page.render(chosen, outcomes)
    assert "| Op | 1 | 2 | 1 | 4 |" in text
    assert "- **Op**, failed: a\\|b\n  test_1, test_2" in text
    assert page.not_passed(text) == {"test_1", "test_2", "test_3"}
