"""Classifiers of ai.onnx.ml and the steps before and behind them, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import farrier
from farrier.errors import InvalidModelError, UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model
from farrier.ir.strings import strings_of
from farrier.ops import run_graph

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
X = np.array([[1, 2], [-3, 0.5], [0, 0], [0.25, -1], [7, -8]], "f4")


def model_of(op, inputs, outputs=("y",), version=3, **attrs):
    node = helper.make_node(op, list(inputs), outputs, domain="ai.onnx.ml", **attrs)
    infos = [
        helper.make_tensor_value_info(
            name,
            onnx.TensorProto.STRING
            if array.dtype.kind == "U"
            else helper.np_dtype_to_tensor_dtype(array.dtype),
            array.shape,
        )
        for name, array in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "g", infos, results)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


def evaluated(model, inputs):
    imported = import_model(model)
    feeds = {
        value.name: codes(array) if array.dtype.kind == "U" else array
        for value, array in zip(imported.graph.inputs, inputs.values(), strict=True)
    }
    results = run_graph(imported.graph, feeds).values()
    return [
        strings_of(array) if name in imported.strings else array
        for name, array in zip(imported.output_names, results, strict=True)
    ]


def codes(strings):
    return strings.view("u4").reshape(*strings.shape, -1)


def compare(model, inputs, tolerance=1e-5):
    expected = onnxruntime.InferenceSession(model).run(None, dict(inputs))
    outputs = evaluated(model, inputs)
    for output, other in zip(outputs, expected, strict=True):
        if other.dtype == object:
            np.testing.assert_array_equal(output, other.astype(str))
        else:
            assert (output.dtype, output.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(output, other, rtol=tolerance, atol=tolerance)
    return outputs


def forest(rng, classes, *, positive=False, sparse=False, trees=5, depth=3):
    """The attributes of a TreeEnsembleClassifier that votes for `classes`, in `sparse` ones at each
    leaf for a single class."""
    nodes = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values")}
    nodes |= {name: [] for name in ("truenodeids", "falsenodeids", "missing_value_tracks_true")}
    votes = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    inner = (1 << depth) - 1
    for tree in range(trees):
        for i in range(2 * inner + 1):
            is_leaf = i >= inner
            row = (tree, i, int(rng.integers(2)), "LEAF" if is_leaf else "BRANCH_LEQ")
            row += (float(rng.integers(-3, 4)), *((0, 0) if is_leaf else (2 * i + 1, 2 * i + 2)), 0)
            for name, value in zip(nodes, row, strict=True):
                nodes[name].append(value)
            leaf_classes = [int(rng.choice(classes))] if sparse else classes
            for target in leaf_classes if is_leaf else ():
                weight = rng.random() if positive else rng.standard_normal()
                for name, value in zip(
                    votes, (tree, i, target, float(weight) / trees), strict=True
                ):
                    votes[name].append(value)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"class_{k}": v for k, v in votes.items()}


def classifier(attrs, labels, transform="NONE", x=X, **more):
    names = "strings" if isinstance(labels[0], str) else "int64s"
    attrs = attrs | {f"classlabels_{names}": labels, "post_transform": transform} | more
    return model_of("TreeEnsembleClassifier", {"x": x}, ("label", "scores"), **attrs)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_forests_of_three_classes(transform):
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (40, 2)).astype("f4")
    attrs = forest(rng, [0, 1, 2], positive=True)
    compare(classifier(attrs, [10, 30, 20], transform, x), {"x": x}, 2e-4)
    attrs = forest(rng, [0, 1, 2], positive=transform == "PROBIT")
    named = classifier(attrs, ["b", "a", "äöü"], transform, x, base_values=[0.1, 0.2, 0.05])
    compare(named, {"x": x}, 2e-4)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("positive", [True, False])
def test_forests_that_vote_for_one_of_two_classes(transform, positive):
    rng = np.random.default_rng(8)
    x = rng.integers(-4, 5, (40, 2)).astype("f4")
    for voted in (0, 1):
        attrs = forest(rng, [voted], positive=positive)
        for labels in ([7, 3], ["no", "yes"]):
            label, _ = compare(classifier(attrs, labels, transform, x), {"x": x})
            assert {*np.unique(label)} == {*labels}
    attrs = forest(rng, [0], positive=positive)
    compare(classifier(attrs, [7, 3], transform, x, base_values=[0.25]), {"x": x})


def test_two_classes_with_votes_have_the_label_of_the_higher_score():
    """ONNX Runtime returns 1 or 0, whatever the labels, by the sign of the second score."""
    rng = np.random.default_rng(2)
    model = classifier(forest(rng, [0, 1]), [30, 20])
    label, scores = evaluated(model, {"x": X})
    expected = onnxruntime.InferenceSession(model).run(["scores"], {"x": X})[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    np.testing.assert_array_equal(label, np.array([30, 20])[expected.argmax(1)])


def test_a_class_without_votes_is_not_chosen():
    rng = np.random.default_rng(3)
    attrs = forest(rng, [0, 1, 2, 3], sparse=True, trees=2)
    attrs["class_weights"] = [-abs(weight) for weight in attrs["class_weights"]]
    x = rng.integers(-4, 5, (40, 2)).astype("f4")
    compare(classifier(attrs, [4, 5, 6, 7], "NONE", x), {"x": x})


@pytest.mark.parametrize("dtype", ["f8", "i8", "i4"])
def test_features_of_other_types(dtype):
    x = np.array([[1, 2], [3, -4], [2, 0]], dtype)
    attrs = forest(np.random.default_rng(4), [0, 1, 2])
    compare(classifier(attrs, [1, 2, 3], x=x), {"x": x})


def test_a_forest_compiles_for_any_batch():
    attrs = forest(np.random.default_rng(5), [0, 1, 2])
    model = onnx.load_from_string(classifier(attrs, ["a", "b", "c"], "SOFTMAX"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    data = model.SerializeToString()
    artifact, session = farrier.compile(data, threads=1), onnxruntime.InferenceSession(data)
    for x in (X, X[:1], np.tile(X, (20, 1))):
        actual, expected = artifact.run({"x": x}), session.run(None, {"x": x})
        np.testing.assert_array_equal(actual["label"], expected[0].astype(str))
        np.testing.assert_allclose(actual["scores"], expected[1], rtol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classifiers(transform):
    weights = [1.0, -1.0, 0.5, 2.0, -1.0, 0.0]
    attrs = {"coefficients": weights, "intercepts": [0.1, 0.0, -0.2], "post_transform": transform}
    for labels in ({"classlabels_ints": [5, 3, 4]}, {"classlabels_strings": ["x", "", "z"]}):
        model = model_of("LinearClassifier", {"x": X}, ("l", "s"), 1, **attrs, **labels)
        with np.errstate(all="ignore"):
            compare(model, {"x": X}, 2e-4)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classifiers_of_one_score(transform):
    attrs = {"coefficients": [1.0, -1.0], "intercepts": [0.1], "post_transform": transform}
    for x in (X, X[0], X.astype("i8")):
        labels = {"classlabels_ints": [5, 3]}
        model = model_of("LinearClassifier", {"x": x}, ("l", "s"), 1, **attrs, **labels)
        compare(model, {"x": x})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizers(norm):
    for x in (X, -X, X[1], X.astype("i8"), X.astype("f8")):
        compare(model_of("Normalizer", {"x": x}, version=1, norm=norm), {"x": x})


def test_imputers():
    x = np.array([[1, np.nan, 3], [0, 0, np.nan]], "f4")
    for values in ([7.0], [7.0, 8.0, 9.0]):
        for missing in (float("nan"), 0.0):
            attrs = {"imputed_value_floats": values, "replaced_value_float": missing}
            compare(model_of("Imputer", {"x": x}, version=1, **attrs), {"x": x})
    x = np.array([[1, -1], [-1, 2]], "i8")
    attrs = {"imputed_value_int64s": [7, 8], "replaced_value_int64": -1}
    compare(model_of("Imputer", {"x": x}, version=1, **attrs), {"x": x})


def test_categories():
    x = np.array([[3, 1], [2, 9]], "i8")
    model = model_of("OneHotEncoder", {"x": x}, version=1, cats_int64s=[1, 2, 3])
    compare(model, {"x": x})
    x = np.array([1.7, 2, 9], "f4")
    compare(model_of("OneHotEncoder", {"x": x}, version=1, cats_int64s=[1, 2, 3]), {"x": x})
    x = np.array(["b", "c", "no"])
    model = model_of("OneHotEncoder", {"x": x}, version=1, cats_strings=["a", "b", "c"])
    compare(model, {"x": x})
    both = {"cats_strings": ["a", "b"], "cats_int64s": [4, 7]}
    compare(model_of("CategoryMapper", {"x": x}, version=1, **both, default_int64=-5), {"x": x})
    x = np.array([7, 4, 5], "i8")
    compare(model_of("CategoryMapper", {"x": x}, version=1, **both), {"x": x})


def test_columns_of_several_inputs():
    floats = {"a": X, "b": X[:, :1], "c": X}
    with pytest.raises(InvalidModelError, match="inputdimensions"):
        import_model(model_of("FeatureVectorizer", floats, version=1, inputdimensions=[2, 1]))
    model = model_of("FeatureVectorizer", floats, version=1, inputdimensions=[3, 1, 1])
    compare(model, floats)


def test_features_of_strings():
    texts = np.array([["a", "b", "c"], ["dd", "e", "f"]])
    places = np.array([2, 0])
    model = model_of("ArrayFeatureExtractor", {"x": texts, "i": places}, version=1)
    compare(model, {"x": texts, "i": places})


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        ("LinearClassifier", {"coefficients": [1.0, 2.0]}, "labels"),
        (
            "LinearClassifier",
            {"coefficients": [1.0, 2.0], "intercepts": [0.0], "classlabels_ints": [1, 2, 3]},
            "3 labels for 1 scores",
        ),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0]}, "3 values to impute"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "no categories"),
    ],
)
def test_malformed_models(op, attrs, words):
    outputs = ("l", "s") if op == "LinearClassifier" else ("y",)
    with pytest.raises(InvalidModelError, match=words):
        import_model(model_of(op, {"x": X}, outputs, 1, **attrs))


def test_norms_and_transformations_that_are_unknown():
    with pytest.raises(UnsupportedOperatorError, match="'L7'"):
        import_model(model_of("Normalizer", {"x": X}, version=1, norm="L7"))
    attrs = {"coefficients": [1.0, 2.0], "post_transform": "CUBE"}
    with pytest.raises(UnsupportedOperatorError, match="'CUBE'"):
        import_model(model_of("LinearRegressor", {"x": X}, version=1, **attrs))


VECTORS = [1.0, 0.0, 0.5, 1.0, -1.0, 1.0, 0.25, -2.0]
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regressors(kernel):
    attrs = {"coefficients": [1.0, -0.5, 0.7, 0.1], "rho": [0.3], "support_vectors": VECTORS}
    attrs |= {"kernel_type": kernel, "kernel_params": [0.3, 0.2, 3.0], "n_supports": 4}
    for one_class in (0, 1):
        model = model_of("SVMRegressor", {"x": X}, version=1, one_class=one_class, **attrs)
        compare(model, {"x": X})
    attrs = {"coefficients": [1.0, -0.5], "rho": [0.3], "n_supports": 0}
    attrs |= {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 3.0]}
    compare(model_of("SVMRegressor", {"x": X}, version=1, **attrs), {"x": X})


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_classifiers(kernel, transform):
    shared = {"support_vectors": VECTORS, "post_transform": transform}
    shared |= {"kernel_type": kernel, "kernel_params": [0.3, 0.2, 3.0]}
    two = {"coefficients": [1.0, -0.5, 0.7, -0.2], "rho": [0.3], "vectors_per_class": [1, 3]}
    three = {
        "coefficients": [1.0, -0.5, 0.7, 0.2, 0.3, 0.4, -1.0, 0.5],
        "rho": [0.3, 0.1, -0.2],
        "vectors_per_class": [1, 2, 1],
    }
    for attrs in (
        two | {"classlabels_ints": [5, 3]},
        two | {"classlabels_strings": ["no", "yes"], "prob_a": [-1.0], "prob_b": [0.2]},
        three | {"classlabels_ints": [5, 3, 4]},
        three | {"classlabels_ints": [5, 3, 4], "prob_a": [-1.0, -2.0, -1.5], "prob_b": [0.2] * 3},
    ):
        model = model_of("SVMClassifier", {"x": X}, ("l", "s"), 1, **shared, **attrs)
        compare(model, {"x": X})


def test_linear_models_as_support_vector_classifiers():
    """With the columns of scores as ONNX Runtime has them."""
    attrs = {"coefficients": [1.0, -0.5, 0.7, 0.2, 0.3, 0.4], "rho": [0.3]}
    attrs |= {"kernel_type": "LINEAR", "kernel_params": [1.0, 0.0, 3.0]}
    for transform in ("NONE", "LOGISTIC", "SOFTMAX"):
        more = {"post_transform": transform, "classlabels_ints": [5, 3, 4]}
        compare(model_of("SVMClassifier", {"x": X}, ("l", "s"), 1, **attrs, **more), {"x": X})


def zipped(labels):
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **labels)
    infos = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "labels", [{"classlabels_int64s": [7, -3]}, {"classlabels_strings": ["yes", "no"]}]
)
def test_maps_are_the_rows_of_a_tensor(labels, tmp_path, monkeypatch):
    """And maps again for a program that is written for ONNX Runtime."""
    monkeypatch.setenv("FARRIER_CACHE", str(tmp_path))
    model = zipped(labels)
    artifact = farrier.compile(model, threads=1)
    np.testing.assert_array_equal(artifact.run({"x": X})["y"], X)
    (declared,) = artifact.manifest.declaration.outputs
    assert (list(declared.keys), declared.members) == (*labels.values(), ("y",))
    artifact.save(tmp_path / "m.farrier")
    expected = onnxruntime.InferenceSession(model).run(None, {"x": X})
    for source in (model, str(tmp_path / "m.farrier")):
        assert farrier.InferenceSession(source).run(None, {"x": X}) == expected


def test_maps_need_a_label_for_each_column():
    with pytest.raises(InvalidModelError, match="3 labels for columns"):
        import_model(zipped({"classlabels_int64s": [1, 2, 3]}), {"x": (4, 2)})
