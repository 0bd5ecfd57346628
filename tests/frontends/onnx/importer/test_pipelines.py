"""A whole pipeline as skl2onnx exports it: imputed, scaled numbers, encoded strings, a forest."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import farrier
from tests.frontends.onnx.importer.test_classifiers import forest


def ml(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attrs)


def pipeline(labels):
    """A model of two numbers and a string in each row, with maps from labels to scores."""
    attrs = forest(np.random.default_rng(1), [0, 1, 2], positive=True)
    attrs["nodes_featureids"] = [3 * n % 5 for n in range(len(attrs["nodes_featureids"]))]
    nodes = [
        ml(
            "Imputer",
            ["x"],
            ["filled"],
            imputed_value_floats=[0.5, -1.0],
            replaced_value_float=np.nan,
        ),
        ml("Scaler", ["filled"], ["scaled"], offset=[0.25, 0.0], scale=[2.0, 0.5]),
        ml("OneHotEncoder", ["words"], ["encoded"], cats_strings=["a", "bc", "ü"], zeros=1),
        helper.make_node("Reshape", ["encoded", "width"], ["columns"]),
        helper.make_node("Concat", ["scaled", "columns"], ["features"], axis=1),
        ml(
            "TreeEnsembleClassifier",
            ["features"],
            ["label", "scores"],
            post_transform="SOFTMAX",
            **attrs,
            **labels,
        ),
        ml("ZipMap", ["scores"], ["maps"], **labels),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 2]),
        helper.make_tensor_value_info("words", TensorProto.STRING, ["rows", 1]),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("label", "maps")]
    width = helper.make_tensor("width", TensorProto.INT64, [2], [-1, 3])
    graph = helper.make_graph(nodes, "g", infos, outputs, [width])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, 3, 5]}, {"classlabels_strings": ["no", "yes", "?"]}]
)
def test_any_number_of_rows(labels):
    model, rng = pipeline(labels), np.random.default_rng(2)
    (names,) = labels.values()
    session = farrier.compile(model, threads=2, verify=False).session()
    reference = onnxruntime.InferenceSession(model)
    for rows in (7, 1, 0, 50):
        x = rng.integers(-3, 4, (rows, 2)).astype("f4")
        x[rng.random(x.shape) < 0.2] = np.nan
        words = rng.choice(["a", "bc", "ü", "other"], (rows, 1)).astype(object)
        results = session.run({"x": x, "words": words})
        assert results["maps"].shape == (rows, 3)
        if not rows:
            assert results["label"].shape == (0,)
            continue
        label, maps = reference.run(None, {"x": x, "words": words})
        np.testing.assert_array_equal(results["label"], label.astype(results["label"].dtype))
        scores = [[scores_of[name] for name in names] for scores_of in maps]
        np.testing.assert_allclose(results["maps"], scores, rtol=1e-5)
