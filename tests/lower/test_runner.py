"""Loop passes are shown, checked and named in errors as the environment asks."""

from __future__ import annotations

import dataclasses
import re

import pytest

from farrier.errors import CompilerError, UsageError
from farrier.ir.loop import For
from farrier.ir.parser import parse_ir
from farrier.ir.printer import print_ir
from farrier.lower.passes import PASSES
from farrier.lower.runner import run_loop_passes
from farrier.passes import Settings, opt
from farrier.targets import parse_target
from farrier.targets.cpu.lowering import ORDER

TEXT = """@function
def rows(a: f32[10], b: f32[10]):
    for o in serial(3):
        for i in vectorized(4):
            if o * 4 + i < 10:
                b[o * 4 + i] = a[o * 4 + i]
"""
SETTINGS = Settings(parse_target("x86-64-v3"), 1)


def test_debug_shows_the_loops_after_each_pass_that_changed_them(monkeypatch, capsys):
    run_loop_passes(parse_ir(TEXT), ORDER)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FARRIER_DEBUG", "5")
    final = run_loop_passes(parse_ir(TEXT), ORDER[:-1])
    _, halos, partition, dead = capsys.readouterr().err.split("--- ")
    assert re.fullmatch(r"merge-halos of rows: [\d.]+ ms \(unchanged\)\n", halos)
    title, _, text = partition.partition("\n")
    assert re.fullmatch(r"partition-loops of rows: [\d.]+ ms", title)
    assert text == print_ir(final)
    assert "(unchanged)" in dead


def test_a_listener_gets_every_pass():
    runs = []
    run_loop_passes(parse_ir(TEXT), ORDER, runs.append)
    assert [run.name for run in runs] == list(ORDER)
    assert [run.name for run in runs if run.changed] == ["partition-loops", "lengthen-short-loops"]


def test_a_pass_that_breaks_the_loops_is_caught_at_the_highest_check(monkeypatch, tmp_path):
    def forget(function):
        return dataclasses.replace(function, params=())

    monkeypatch.setitem(PASSES, "merge-halos", forget)
    monkeypatch.setenv("FARRIER_CRASHES", str(tmp_path))
    assert run_loop_passes(parse_ir(TEXT), ["merge-halos"]).params == ()
    monkeypatch.setenv("FARRIER_CHECK", "2")
    assert run_loop_passes(parse_ir(TEXT), ["partition-loops"])
    with pytest.raises(CompilerError, match="the pass merge-halos failed on kernel rows") as caught:
        run_loop_passes(parse_ir(TEXT), ["merge-halos"])
    (path,) = tmp_path.glob("merge-halos-*.ir")
    assert caught.value.hint == f"farrier opt {path} -p merge-halos"
    assert path.read_text() == TEXT


def test_a_pass_that_fails_leaves_a_reproducer(monkeypatch, tmp_path):
    def fail(function):
        assert not isinstance(function.body, For), "no loops, please"

    monkeypatch.setitem(PASSES, "merge-halos", fail)
    monkeypatch.setenv("FARRIER_CRASHES", str(tmp_path))
    with pytest.raises(CompilerError, match="AssertionError: no loops, please"):
        run_loop_passes(parse_ir(TEXT), ["merge-halos"])
    assert [path.read_text() for path in tmp_path.iterdir()] == [TEXT]


def test_opt_runs_loop_passes_on_a_kernel():
    shown = opt(TEXT, ["merge-halos", "partition-loops"], True, settings=SETTINGS)
    first, second = shown.split("# after partition-loops\n")
    assert first == f"# after merge-halos\n{TEXT}\n"
    assert opt(TEXT, ["partition-loops"], settings=SETTINGS) == second
    assert "if" not in second
    with pytest.raises(UsageError, match="there is no loop pass fuse") as caught:
        opt(TEXT, ["fuse"], settings=SETTINGS)
    assert "partition-loops" in caught.value.hint
