"""`python -m bench --operators`: its table of models, a short race, words that make no sense."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import pytest

from bench.operators.__main__ import chosen, main
from bench.operators.model import Operand, OperatorModel
from bench.operators.race import Effort, Latency, Row, _difference, race
from bench.operators.report import markdown, summary, table
from bench.operators.table import MODELS
from farrier.errors import UsageError

LATENCY = Latency(median=2.0, best=1.0, p10=1.0, p90=3.0, turns=(1.0, 2.0, 6.0))
PEER = Latency(median=2.0, best=2.0, p10=2.0, p90=2.0, turns=(2.0, 2.0, 3.0))


def test_the_table_declares_valid_models():
    assert len({model.name for model in MODELS}) == len(MODELS)
    for model in MODELS:
        if np.prod(model.operands[0].shape) < 1 << 22:  # Larger ones take a while to draw.
            proto = onnx.load_from_string(model.build())
            context = onnx.checker.C.CheckerContext()
            context.ir_version = proto.ir_version
            context.opset_imports = {"": model.opset}
            onnx.checker.check_node(proto.graph.node[0], context)


def test_a_model_and_its_inputs_are_the_same_each_time():
    model = OperatorModel("Add", "Add", (Operand((3,)), Operand((3,), is_constant=True)))
    assert model.build() == model.build()
    np.testing.assert_array_equal(model.inputs()["x0"], model.inputs()["x0"])
    assert list(model.inputs()) == ["x0"]


def test_engines_are_compared_and_timed_in_turns():
    model = OperatorModel("Relu", "Relu", (Operand((4, 8)),))
    row = race(model, threads=1, effort=Effort(turns=2, turn_s=0.001))
    assert (row.error, row.rules, row.is_wrong) == (0.0, ("elementwise",), False)
    assert len(row.farrier.turns) == len(row.peer.turns) == 2
    assert row.farrier.best <= row.farrier.median


def test_ratios_are_of_turns_that_ran_together():
    row = Row("a", LATENCY, PEER, 0.0, ("rows", "rows", "nest"))
    assert row.ratio == 1.0  # The median of 0.5, 1.0 and 2.0.
    assert row.best_ratio == 0.5
    slow = dataclasses.replace(row, peer=dataclasses.replace(PEER, turns=(0.5, 0.5, 0.5)))
    assert summary([row, slow]).endswith("1 above 1.0, 1 above 1.1, 1 above 1.3")
    assert "| a | 2.000 | 2.000 | 1.00 | 0.50 | rows ×2, nest |" in markdown([row], "here")
    assert table([row, Row("b", failure="refused")]).row_count == 2


@pytest.mark.parametrize(
    ("output", "expected", "error"),
    [
        ([1000.5], [1000.0], 5e-4),  # A sum of many, whose range as a single value is 0.
        ([np.nan, np.inf, 2.0], [np.nan, np.inf, 2.0], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0, 2.0], [1.0], np.inf),
    ],
)
def test_the_error_is_relative_to_the_largest_magnitude(output, expected, error):
    arrays = [{"y": np.array(values)} for values in (output, expected)]
    assert _difference(*arrays) == pytest.approx(error)


@pytest.mark.parametrize(("error", "wrong"), [(5e-4, False), (2e-3, True), (float("nan"), True)])
def test_outputs_that_differ_are_no_result(error, wrong):
    assert Row("a", error=error).is_wrong is wrong


def test_a_run_writes_what_it_measured(tmp_path, capsys):
    path = tmp_path / "operators.json"
    assert main(["--operators", "--quick", "--only", "bi,kij", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())["rows"]
    assert row["model"] in capsys.readouterr().out
    assert row["ratio"] > 0


@pytest.mark.parametrize("pattern", ["abacus", "("])
def test_a_pattern_that_chooses_nothing_is_refused(pattern):
    with pytest.raises(UsageError, match="--only"):
        chosen(pattern, quick=False)
