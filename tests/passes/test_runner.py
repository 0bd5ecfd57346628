"""The runner names the pass that failed and leaves what reproduces it."""

from __future__ import annotations

import pytest
from graph_tools import SETTINGS, NetworkBuilder

from farrier.errors import CompilerError, UsageError
from farrier.ir.constants import beside
from farrier.ir.graph import Graph
from farrier.ir.parser import ParseError, parse_ir
from farrier.passes import PASSES, opt, optimize, run_passes
from farrier.progress import debug
from farrier.targets.cpu.passes import ORDER

_TEXT = """@graph
def g(x: f32[2]):
    two: f32[()] = constant(2.0)
    one: f32[()] = constant(1.0)
    three: f32[()] = Add(two, one)
    y: f32[2] = Mul(x, three)
    return y
"""


def _net():
    net = NetworkBuilder(3)
    return net.graph(net.add("Relu", net.conv(net.input(1, 3, 8, 8), 16)))


def test_the_listener_sees_every_pass():
    runs = []
    graph = _net()
    result = optimize(graph, SETTINGS, runs.append)
    assert [run.name for run in runs] == list(ORDER)
    assert runs[0].before is graph
    assert runs[-1].after is result
    assert runs[-1].changed
    assert not runs[0].changed
    assert all(run.seconds >= 0 for run in runs)


def test_an_unknown_pass_is_refused_before_any_runs():
    with pytest.raises(UsageError, match="there is no pass fold-everything"):
        run_passes(_net(), ["simplify", "fold-everything"], SETTINGS)


def test_a_failing_pass_is_named_and_reproducible(monkeypatch, tmp_path):
    monkeypatch.setenv("FARRIER_CRASHES", str(tmp_path / "crashes"))

    def explode(graph, target):
        raise ZeroDivisionError("no channels")

    monkeypatch.setitem(PASSES, "simplify", explode)
    graph = _net()
    with pytest.raises(CompilerError, match="the pass simplify failed on graph net") as caught:
        run_passes(graph, ["fold-constants", "simplify"], SETTINGS)
    assert "ZeroDivisionError: no channels" in caught.value.message
    (path,) = (tmp_path / "crashes").glob("*.ir")
    assert f"farrier opt {path} -p simplify" in caught.value.hint
    text = path.read_text()
    assert parse_ir(text, beside(path)) == graph
    assert opt(text, [], constants=beside(path), settings=SETTINGS) == text


def test_a_pass_that_breaks_the_graph_is_caught(monkeypatch, tmp_path):
    monkeypatch.setenv("FARRIER_CRASHES", str(tmp_path))

    def forget(graph, target):
        return Graph(graph.name, graph.inputs, (), graph.nodes, graph.outputs)

    monkeypatch.setitem(PASSES, "simplify", forget)
    with pytest.raises(CompilerError, match=r"pass simplify failed.*nothing before defines it"):
        run_passes(_net(), ["simplify"], SETTINGS)
    monkeypatch.setenv("FARRIER_CHECK", "0")
    assert run_passes(_net(), ["simplify"], SETTINGS).constants == ()


def test_the_highest_check_reads_every_graph_back(monkeypatch):
    monkeypatch.setenv("FARRIER_CHECK", "2")
    assert optimize(_net(), SETTINGS).nodes


def test_the_debug_ladder(monkeypatch, capsys):
    graph = _net()
    optimize(graph, SETTINGS)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FARRIER_DEBUG", "1")
    optimize(graph, SETTINGS)
    times = capsys.readouterr().err
    assert "--- fuse: " in times
    assert "(unchanged)" in times
    monkeypatch.setenv("FARRIER_DEBUG", "2")
    optimize(graph, SETTINGS)
    changes = capsys.readouterr().err
    assert "+    def conv_relu(" in changes
    monkeypatch.setenv("FARRIER_DEBUG", "3")
    optimize(graph, SETTINGS)
    assert "@graph\ndef net(" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["FARRIER_DEBUG", "FARRIER_CHECK"])
def test_a_level_is_a_number(monkeypatch, variable):
    monkeypatch.setenv(variable, "verbose")
    with pytest.raises(UsageError, match=f"{variable} is 'verbose'"):
        debug.debug_level() if variable == "FARRIER_DEBUG" else debug.check_level()


def test_opt_prints_the_result():
    text = opt(_TEXT, ["fold-constants", "eliminate-dead-code"], settings=SETTINGS)
    assert "three: f32[()] = constant(3.0)" in text
    assert "two" not in text
    assert parse_ir(text)


def test_opt_prints_after_each_pass():
    text = opt(_TEXT, ["fold-constants", "eliminate-dead-code"], True, settings=SETTINGS)
    first, second = text.split("# after eliminate-dead-code\n")
    assert first.startswith("# after fold-constants\n")
    assert "two" in first
    assert "two" not in second


def test_no_pass_runs_on_a_tensor_program():
    kernel = """@program
def f(x: f32[2]):
    y: f32[2]
    for i in axes(2):
        y[i] = x[i] + 1.0
    return y
"""
    assert opt(kernel, [], settings=SETTINGS) == kernel
    with pytest.raises(UsageError, match="the text is a @program"):
        opt(kernel, ["fuse"], settings=SETTINGS)
    with pytest.raises(ParseError, match="line 1"):
        opt("no graph", [], settings=SETTINGS)
