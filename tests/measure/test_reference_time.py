"""Farrier's own reference has some time for a model, and then another opinion counts, or none."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import TimeLimitError, UsageError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.model.file import Model
from farrier.ops.run import run_graph
from farrier.ops.time_limit import OutOfTimeError, time_limit
from farrier.options import CompileOptions
from farrier.packaging import verify
from farrier.packaging.onnxruntime import OnnxRuntime
from farrier.packaging.reference_time import ReferenceTime, estimated_s, reference_s
from farrier.pipeline import compile_model
from farrier.progress import VERIFICATION, Warned
from tests.loops import ENDLESS, loop

SHORT = {"reference_s": 0.4}


def product(size: int = 8) -> bytes:
    shape = [size, size]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_loop_that_never_ends_is_told_of_by_name(monkeypatch, is_installed) -> None:
    if not is_installed:
        monkeypatch.setattr(OnnxRuntime, "of", lambda *_: None)
    said: list[object] = []
    with pytest.raises(TimeLimitError, match="the step 'reference' did not end in the") as caught:
        compile_model(loop(ENDLESS), CompileOptions(threads=1), listener=said.append, **SHORT)
    assert "FARRIER_REFERENCE_S" in caught.value.hint
    assert "--no-verify" in caught.value.hint
    warnings = [event.message for event in said if isinstance(event, Warned)]
    assert [("gave none within" in text) for text in warnings] == [True] * is_installed


def test_a_loop_that_ends_is_verified_in_its_time(monkeypatch) -> None:
    monkeypatch.setattr(OnnxRuntime, "of", lambda *_: None)
    artifact = compile_model(loop(3), CompileOptions(threads=1), reference_s=250.0)
    assert artifact.report["verification"]["reference"] == "float64"


def test_another_opinion_is_enough_and_the_user_hears_that_it_is_alone(monkeypatch) -> None:
    """Both are asked about a model with a branch that fails."""
    monkeypatch.setattr(verify, "failures", lambda _graph: [object()])
    said: list[object] = []

    def out_of_time(*_arguments, **_options):
        raise OutOfTimeError

    monkeypatch.setattr(verify, "run_graph", out_of_time)
    artifact = compile_model(product(), CompileOptions(threads=1), listener=said.append)
    assert artifact.report["verification"]["reference"].startswith("ONNX Runtime")
    (warning,) = (event for event in said if isinstance(event, Warned))
    assert warning.topic == VERIFICATION
    assert "model is compared with ONNX Runtime" in warning.message
    assert "alone: the step 'reference' did not end" in warning.message


def test_a_run_past_its_limit_ends_between_two_nodes_and_only_within_the_limit() -> None:
    graph = import_model(Model.of_bytes(loop(ENDLESS))).graph
    x = {graph.inputs[0].name: np.zeros(4, np.float32)}
    with pytest.raises(OutOfTimeError), time_limit(0.05):
        run_graph(graph, x)
    graph = import_model(Model.of_bytes(loop(5))).graph
    (y,) = run_graph(graph, {graph.inputs[0].name: np.zeros(4, np.float32)}).values()
    np.testing.assert_array_equal(y, np.full(4, 5, np.float32))


def test_the_time_grows_with_the_operations_that_the_shapes_tell() -> None:
    small, large = (import_model(Model.of_bytes(product(size))).graph for size in (8, 512))
    assert estimated_s(large) > 1000 * estimated_s(small)
    assert ReferenceTime(large, 100.0).total_s > ReferenceTime(small, 100.0).total_s
    assert ReferenceTime(large, 1e-3).total_s == pytest.approx(4e-3)  # The limit bounds it.
    ends, never = (import_model(Model.of_bytes(loop(n))).graph for n in (1, ENDLESS))
    assert estimated_s(ends) == estimated_s(never)


def test_inputs_of_whole_types_have_half_of_what_is_left() -> None:
    time = ReferenceTime(import_model(Model.of_bytes(product())).graph, 0.2)
    graph = import_model(Model.of_bytes(loop(ENDLESS))).graph
    x = {graph.inputs[0].name: np.zeros(4, np.float32)}
    with pytest.raises(OutOfTimeError), time.spent(is_whole=True):
        run_graph(graph, x)
    assert 0.0 < time._left_s < 0.11


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf"])
def test_a_setting_that_cannot_be_read_is_named(text) -> None:
    with pytest.raises(UsageError, match="FARRIER_REFERENCE_S"):
        reference_s({"FARRIER_REFERENCE_S": text})
    assert reference_s({"FARRIER_REFERENCE_S": "7"}) == 7.0
    assert reference_s({}) == 300.0
