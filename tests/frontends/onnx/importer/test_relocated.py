"""A model whose files lie elsewhere, written anew for a reader that knows folders alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import relocated
from farrier.frontends.onnx.model.file import Model


def external(name: str, location: str, count: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[count])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


@pytest.fixture
def elsewhere(tmp_path):
    """x + w, and in a branch also + an initializer or a constant's value; where each file lies."""
    data = {name: np.arange(5, dtype=np.float32) * n for n, name in enumerate("wbc", 1)}
    places = {}
    for name, array in data.items():
        place = tmp_path / name / f"{name * 64}"
        place.parent.mkdir()
        place.write_bytes(array.tobytes())
        places[f"data/{name}"] = place
    out = helper.make_tensor_value_info("s", TensorProto.FLOAT, [5])
    constant = helper.make_node("Constant", [], ["c"], value=external("", "data/c", 5))
    branches = {
        "then_branch": helper.make_graph(
            [helper.make_node("Add", ["h", "b"], ["s"])],
            "t",
            [],
            [out],
            [external("b", "data/b", 5)],
        ),
        "else_branch": helper.make_graph(
            [constant, helper.make_node("Add", ["h", "c"], ["s"])], "e", [], [out]
        ),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["h"]),
            helper.make_node("If", ["q"], ["y"], **branches),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [5]),
            helper.make_tensor_value_info("q", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5])],
        [external("w", "data/w", 5)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / ("m" * 64)
    path.write_bytes(model.SerializeToString())
    return Model.of_files(path, places), data


def test_every_tensor_is_found_at_any_depth(elsewhere, tmp_path):
    model, data = elsewhere
    message, folder = relocated(model)
    assert folder == tmp_path
    locations = Model.of_bytes(message, folder=folder).locations
    assert set(locations) == {f"{name}/{name * 64}" for name in data}
    assert len(onnx.load_from_string(message).graph.node) == 2


def test_onnx_runtime_reads_it(elsewhere):
    model, data = elsewhere
    message, folder = relocated(model)
    options = onnxruntime.SessionOptions()
    key = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(key, str(folder))
    session = onnxruntime.InferenceSession(message, options, providers=["CPUExecutionProvider"])
    x = np.ones(5, np.float32)
    for branch, name in ((True, "b"), (False, "c")):
        (y,) = session.run(None, {"x": x, "q": np.array(branch)})
        np.testing.assert_array_equal(y, x + data["w"] + data[name])


def test_a_file_that_was_not_given_is_named(elsewhere):
    model, _ = elsewhere
    some = {location: file.path for location, file in list(model.external.items())[1:]}
    assert model.file is not None
    with pytest.raises(InvalidModelError, match="which was not given"):
        relocated(Model.of_files(model.file.path, some))
