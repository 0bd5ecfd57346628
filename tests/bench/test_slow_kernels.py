"""`python -m bench.slow_kernels`: slow kernels are listed, and those nobody accepted fail it."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from bench import slow_kernels
from bench.slow_kernels import ACCEPTED, main

PAGE = Path(__file__).parents[2] / "docs/develop/measuring.md"


@pytest.fixture
def path(tmp_path):
    """A model of one long running sum, in one line."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], name="sum_of_line")
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [0])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [40_000])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [40_000])
    graph = helper.make_graph([node], "g", [x], [y], [axis])
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "sum.onnx")
    return tmp_path / "sum.onnx"


def test_an_accepted_kernel_is_listed_with_its_reason(path, capsys):
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out
    assert "(node 'sum_of_line') takes 100% of the model" in lines
    assert ACCEPTED["CumSum"] in lines
    assert "1 models, 1 slow kernels, 0 of them not accepted" in lines


def test_a_kernel_that_is_not_accepted_fails_the_command(path, capsys, monkeypatch):
    monkeypatch.setattr(slow_kernels, "ACCEPTED", {})
    assert main([str(path)]) == 1
    assert "1 of them not accepted" in capsys.readouterr().out


def test_the_page_lists_each_operator_with_its_reason():
    section = PAGE.read_text().partition("\n## Kernels in scalar code\n")[2].partition("\n## ")[0]
    for operator, reason in ACCEPTED.items():
        assert f"| {operator} | {reason} |" in section
