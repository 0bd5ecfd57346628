"""Sizes that a question leaves: whatever is asked of dims has one answer at all that is left."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import helper

import farrier
from farrier.errors import (
    InputMismatchError,
    InvalidModelError,
    SizeWarning,
    UnresolvedShapeError,
    UsageError,
)
from farrier.frontends.builder.preconditions import narrowed
from farrier.frontends.builder.signature import Declared, resolve
from farrier.frontends.onnx.importer import import_model
from farrier.ir.dim import Undecided, evaluate, maximum, minimum
from farrier.ir.types import DType

node = helper.make_node
SIZES = st.integers(1, 300)
DIMS = ("a", "b", "c")


def extents(leaves):
    """Sizes that models compute: linear, divided, bounded, multiplied."""
    return (
        st.tuples(leaves, st.integers(-9, 9)).map(sum)
        | st.tuples(leaves, st.integers(2, 33)).map(lambda p: (p[0] + p[1] - 1) // p[1])
        | st.tuples(leaves, st.integers(2, 33)).map(lambda p: p[0] % p[1])
        | st.tuples(leaves, leaves).map(lambda p: p[0] - p[1])
        | st.tuples(leaves, leaves).map(lambda p: p[0] + 2 * p[1])
        | st.tuples(leaves, SIZES).map(lambda p: minimum(*p))
        | st.tuples(leaves, leaves).map(lambda p: maximum(*p))
        | st.tuples(leaves, st.integers(1, 64)).map(lambda p: p[0] * p[1])
    )


def signature(usual):
    """Three dims up to 400, with these typical sizes."""
    inputs = [Declared("x", DType.F32, DIMS)]
    return resolve(inputs, {"x": tuple(f"{n}:1..400" for n in DIMS)}, (), usual)


def asked(ask):
    try:
        ask()
    except Undecided as error:
        return error.question
    return None


@given(
    data=st.data(),
    usual=st.fixed_dictionaries(dict.fromkeys(DIMS, SIZES)),
    is_zero=st.booleans(),
)
def test_what_is_left_has_the_typical_answer(data, usual, is_zero):
    before = signature(usual)
    leaves = st.sampled_from(before.types["x"].shape)
    extent = data.draw(st.recursive(leaves, extents, max_leaves=5))
    question = asked((lambda: bool(extent)) if is_zero else (lambda: extent > 0))
    assume(question is not None)
    after = narrowed(before, question, "here")
    sizes = {dim.symbol: usual[dim.name] // dim.step for dim in after.dims}
    assert tuple(evaluate(e, sizes) for e in after.types["x"].shape) == tuple(map(usual.get, DIMS))
    wanted = question.answer(evaluate(question.extent, _by_symbol(before, usual)))
    drawn = {
        dim.symbol: data.draw(st.integers(dim.low, dim.high), label=dim.name) for dim in after.dims
    }
    assume(all(evaluate(limit, drawn) >= 0 for limit in after.limits))
    actual = dict(zip(DIMS, (evaluate(e, drawn) for e in after.types["x"].shape), strict=True))
    assert question.answer(evaluate(question.extent, _by_symbol(before, actual))) is wanted
    (precondition,) = after.told()
    assert precondition.answer is wanted
    assert set(precondition.dims) <= set(DIMS)


def _by_symbol(signature, sizes):
    return {dim.symbol: sizes[dim.name] for dim in signature.dims}


CASES = {
    "range": ([node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5])], "x[2] is 5 to 65536"),
    "multiples": (
        [node("Conv", ["x", "w"], ["h"], strides=[2, 2], kernel_shape=[2, 2]),
         node("ConvTranspose", ["h", "w"], ["u"], strides=[2, 2]), node("Add", ["x", "u"], ["y"])],
        "x[2] is a multiple of 2",
    ),
    "one": ([node("Squeeze", ["x", "zero"], ["y"])], "x[0] is 1"),
    "others": ([node("MatMul", ["x", "x"], ["y"])], "x[3] is x[2]"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_call_that_breaks_a_precondition_names_it(model, case):
    nodes, needs = CASES[case]
    constants = {"w": np.ones((1, 1, 2, 2), np.float32), "zero": np.array([0])}
    data = model(nodes, {"x": [None, 1, None, None]}, constants=constants)
    artifact = farrier.compile(data, listener=lambda event: None)  # Warnings have tests below.
    (taken,) = (
        precondition
        for precondition in artifact.manifest.preconditions
        if precondition.needs == needs
    )
    assert str(taken) in artifact.report["preconditions"]
    reference = onnxruntime.InferenceSession(data)
    for shape in ((1, 1, 224, 224), (1, 1, 10, 10)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (wanted,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(artifact.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(InputMismatchError) as caught:
        artifact.run({"x": np.ones((3, 1, 3, 2) if case != "one" else (2, 1, 9, 9), "f4")})
    assert f"node {nodes[-1].output[0]!r}" in caught.value.message
    assert needs in caught.value.message
    assert "--typical" in caught.value.hint


def positions_model(model):
    """The bytes of a model whose table of 100 positions bounds the sum of its two dims."""
    nodes = [
        node("Concat", ["p", "x"], ["c"], axis=0),
        node("Shape", ["c"], ["n"]),
        node("Slice", ["table", "zero", "n", "zero"], ["t"]),
        node("Add", ["c", "t"], ["y"]),
    ]
    constants = {"table": np.arange(100, dtype=np.float32), "zero": np.array([0])}
    return model(nodes, {"p": ["past"], "x": ["seq"]}, constants=constants)


def test_a_bound_on_a_sum_of_dims(model):
    """A table of positions bounds the sum of past and new positions."""
    data = positions_model(model)
    artifact = farrier.compile(data, typical={"past": 40, "seq": 8})
    reference = onnxruntime.InferenceSession(data)
    for past, seq in ((40, 8), (99, 1), (1, 99)):
        feed = {"p": np.ones(past, np.float32), "x": np.zeros(seq, np.float32)}
        np.testing.assert_array_equal(artifact.run(feed)["y"], reference.run(None, feed)[0])
    with pytest.raises(InputMismatchError, match=r"does not take past 60, seq 60; .*'y'"):
        artifact.run({"p": np.ones(60, np.float32), "x": np.ones(60, np.float32)})


def test_an_operator_implies_the_typical_size(model):
    """The weights imply the size, since no size near the usual one fits."""
    nodes = [
        node("AveragePool", ["x"], ["h"], kernel_shape=[8, 8], strides=[8, 8]),
        node("Flatten", ["h"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    data = model(nodes, {"x": ["n", 3, "h", "w2"]}, constants={"w": np.ones((48, 5), np.float32)})
    imported = import_model(data)
    assert [(d.name, d.low, d.high, d.typical) for d in imported.dims] == [
        ("n", 0, 65536, 1), ("h", 32, 39, 32), ("w2", 32, 39, 32)
    ]  # fmt: skip
    with pytest.raises(InvalidModelError, match="differ in their inner extent") as caught:
        import_model(data, typical={"h": 64, "w2": 64})
    assert "--typical" in caught.value.hint
    with pytest.raises(UsageError, match="h is 64 in --hot, and the model leaves it 32 to 39"):
        farrier.compile(data, hot=[{"h": 64}], typical={"h": 32, "w2": 32})


def test_a_branch_narrows_its_own_sizes_alone(model):
    """Two windows, as of a model for two rates: each branch takes what its window fits."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [node("AveragePool", ["x"], [name], kernel_shape=[width], strides=[width])],
            name, [], [helper.make_empty_tensor_value_info(name)],
        )
        for name, width in (("then", 100), ("else", 7))
    }  # fmt: skip
    nodes = [node("If", ["c"], ["h"], **branches), node("ReduceMax", ["h"], ["y"])]
    data = model(nodes, {"x": [1, 1, "n"], "c": []}, dtypes={"c": onnx.TensorProto.BOOL})
    artifact = farrier.compile(data, typical={"n": 150})
    assert [(dim.low, dim.high) for dim in artifact.manifest.dims] == [(0, 1 << 20)]
    reference = onnxruntime.InferenceSession(data)
    for size, branch in ((150, True), (150, False), (700, True), (50, False), (7, False)):
        feed = {"x": np.random.default_rng(0).standard_normal((1, 1, size)).astype(np.float32)}
        feed["c"] = np.array(branch)
        (wanted,) = reference.run(None, feed)
        np.testing.assert_allclose(artifact.run(feed)["y"], wanted, rtol=1e-5)
    for size, branch in ((99, True), (6, False)):
        feed = {"x": np.ones((1, 1, size), np.float32), "c": np.array(branch)}
        with pytest.raises(InputMismatchError, match=r"not compiled: n is \d+ to .*AveragePool"):
            artifact.run(feed)


def test_bounds_follow_the_dims_that_they_are_made_of(model):
    """A sum that is bounded, then one of its parts in multiples, then a window over each."""
    nodes = [
        node("Concat", ["p", "x"], ["c"], axis=0),
        node("Shape", ["c"], ["n"]),
        node("Slice", ["table", "zero", "n", "zero"], ["t"]),
        node("Add", ["c", "t"], ["s"]),
        node("Reshape", ["p", "pairs"], ["q"]),
        node("Reshape", ["s", "image"], ["i"]),
        node("MaxPool", ["i"], ["w"], kernel_shape=[5]),
        node("ReduceSum", ["q"], ["r"], keepdims=0),
        node("Add", ["w", "r"], ["y"]),
    ]
    constants = {
        "table": np.arange(40, dtype=np.float32),
        "zero": np.array([0]),
        "pairs": np.array([2, -1]),
        "image": np.array([1, 1, -1]),
    }
    data = model(nodes, {"p": ["a"], "x": ["b"]}, constants=constants)
    sizes = {"p": ("a:1..100",), "x": ("b:1..100",)}
    artifact = farrier.compile(data, shapes=sizes, typical={"a": 12, "b": 8})
    reference = onnxruntime.InferenceSession(data)
    for a, b in ((12, 8), (2, 38), (36, 4), (2, 3)):
        feed = {"p": np.ones(a, np.float32), "x": np.zeros(b, np.float32)}
        np.testing.assert_array_equal(artifact.run(feed)["y"], reference.run(None, feed)[0])
    for a, b in ((3, 8), (20, 22)):
        with pytest.raises(InputMismatchError, match=r"a is a multiple of 2|does not take a 20"):
            artifact.run({"p": np.ones(a, np.float32), "x": np.ones(b, np.float32)})


def test_many_dims_in_one_question(model):
    """The number of trials does not grow with the ways to choose among the dims."""
    names = [f"x{n}" for n in range(16)]
    nodes = [node("Concat", names, ["c"], axis=0), node("Reshape", ["c", "two"], ["y"])]
    data = model(nodes, {n: [f"d{n}"] for n in names}, constants={"two": np.array([2, -1])})
    (taken,) = import_model(data).preconditions
    assert len(taken.dims) == 16


def test_a_question_in_a_loop_of_unknown_length(model):
    body = helper.make_graph(
        [node("MaxPool", ["x"], ["w"], kernel_shape=[5]), node("ReduceMax", ["w"], ["m"]),
         node("Add", ["state", "m"], ["next"]), node("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
         helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", onnx.TensorProto.FLOAT, [1, 1, 1])],
        [helper.make_empty_tensor_value_info(n) for n in ("on", "next")],
    )  # fmt: skip
    data = model(
        [node("Loop", ["trips", "", "start"], ["y"], body=body)],
        {"x": [1, 1, "n"], "trips": []},
        constants={"start": np.zeros((1, 1, 1), np.float32)},
        dtypes={"trips": onnx.TensorProto.INT64},
    )
    imported = import_model(data)
    assert [(d.name, d.low) for d in imported.dims] == [("n", 5)]


def test_a_branch_in_multiples_returns_the_shape_of_the_other(model):
    pairs = [node("Reshape", ["x", "two"], ["p"]), node("ReduceSum", ["p"], ["s"], keepdims=0),
             node("Add", ["x", "s"], ["then"])]  # fmt: skip
    branches = {
        f"{name}_branch": helper.make_graph(
            nodes, name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name, nodes in (("then", pairs), ("else", [node("Neg", ["x"], ["else"])]))
    }
    nodes = [node("If", ["c"], ["h"], **branches), node("Add", ["h", "x"], ["y"])]
    data = model(
        nodes, {"x": ["n"], "c": []}, constants={"two": np.array([2, -1])},
        dtypes={"c": onnx.TensorProto.BOOL},
    )  # fmt: skip
    artifact = farrier.compile(data, typical={"n": 6})
    for size, branch in ((6, True), (9, False), (10, True)):
        x = np.arange(size, dtype=np.float32)
        wanted = 2 * x + x.sum() if branch else 0 * x
        np.testing.assert_allclose(artifact.run({"x": x, "c": np.array(branch)})["y"], wanted)


def test_a_size_that_is_far_from_the_typical_one_is_implied(model):
    data = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", "features"]},
                 constants={"w": np.zeros((25088, 3), np.float32)})  # fmt: skip
    imported = import_model(data)
    assert imported.graph.inputs[0].type.shape[1] == 25088


def test_a_hot_size_that_breaks_a_bound(model):
    data = positions_model(model)
    with pytest.raises(UsageError, match="cannot have past=60, seq=60 in --hot"):
        farrier.compile(data, hot=[{"past": 60, "seq": 60}], typical={"past": 40, "seq": 8})


def test_a_hot_size_of_a_dim_that_another_makes(model):
    data = model([node("MatMul", ["x", "x"], ["y"])], {"x": ["h", "w"]})
    with pytest.raises(UsageError, match="w is 12 in --hot, and the model makes it 16"):
        farrier.compile(data, hot=[{"h": 8, "w": 8}, {"h": 16, "w": 12}])


def assert_as_onnxruntime(artifact, data, *feeds):
    session = onnxruntime.InferenceSession(data)
    for feed in feeds:
        (wanted,) = session.run(None, feed)
        (result,) = artifact.run(feed).values()
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def f32(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_frames_that_are_spliced(model):
    """Neighbours cut out of an open axis are as long as one another, whatever that is."""
    cuts = {"p": (0, -2), "q": (1, -1), "r": (2, 2**62)}
    constants = {f"{n}{i}": np.array([b]) for n, cut in cuts.items() for i, b in enumerate(cut)}
    nodes = [node("Slice", ["x", f"{n}0", f"{n}1", "axis"], [n]) for n in cuts]
    nodes += [node("Concat", [*cuts], ["c"], axis=1), node("Sub", ["r", "p"], ["s"])]
    nodes += [node("Concat", ["c", "s"], ["y"], axis=1)]
    data = model(nodes, {"x": [2, 1, "t"]}, constants=constants | {"axis": np.array([2])})
    artifact = farrier.compile(data, verify=False)
    assert not artifact.report["preconditions"]
    assert_as_onnxruntime(artifact, data, *({"x": f32(2, 1, t)} for t in (9, 128, 3, 2, 1, 0)))


def test_pixels_that_are_unshuffled(model):
    """Rows in pairs, of an image of open sides: the width has no part in the question."""
    nodes = [node("Unsqueeze", ["x", "axes"], ["a"]), node("Reshape", ["a", "pairs"], ["y"])]
    constants = {"axes": np.array([3]), "pairs": np.array([0, 0, -1, 2, 0])}
    data = model(nodes, {"x": [1, 3, "h", "w"]}, constants=constants)
    artifact = farrier.compile(data, verify=False)
    assert [(d.name, d.step) for d in artifact.manifest.dims] == [("h", 2), ("w", 1)]
    assert not artifact.report["warnings"]
    assert_as_onnxruntime(artifact, data, {"x": f32(1, 3, 8, 5)}, {"x": f32(1, 3, 2, 224)})


def test_squeezed_axes_that_may_be_1_are_not(model):
    """A first axis is typically 1, and yet not what a Squeeze without axes takes away."""
    data = model([node("Squeeze", ["x"], ["y"])], {"x": ["n", 6, 1]})
    with pytest.warns(SizeWarning, match="does not take every n: n is 2 to 65536: node 'y'"):
        artifact = farrier.compile(data, verify=False)
    assert [(d.low, d.typical) for d in artifact.manifest.dims] == [(2, 128)]
    assert_as_onnxruntime(artifact, data, {"x": f32(20, 6, 1)}, {"x": f32(2, 6, 1)})
    with pytest.raises(InputMismatchError, match=r"n is 2 to 65536: node 'y' \(Squeeze\)"):
        artifact.run({"x": f32(1, 6, 1)})
    with pytest.warns(SizeWarning, match="takes one size of n alone: n is 1: node 'y'"):
        chosen = farrier.compile(data, typical={"n": 1}, verify=False)
    assert_as_onnxruntime(chosen, data, {"x": f32(1, 6, 1)})


def test_a_size_that_is_the_only_one_left_is_a_warning(model):
    data = model([node("Add", ["x", "z"], ["y"])], {"x": ["n", 3]}, constants={"z": f32(7, 3)})
    with pytest.warns(SizeWarning, match=r"one size of n alone: n is 7: node 'y' \(Add\)") as heard:
        artifact = farrier.compile(data, verify=False)
    (notice,) = artifact.report["warnings"]
    assert [str(warning.message).endswith(notice) for warning in heard] == [True]


def test_two_names_of_one_size_or_of_one_row_for_all(model):
    """A mask with a batch and keys of its own."""
    nodes = [node("Add", ["x", "mask"], ["s"]), node("Softmax", ["s"], ["y"], axis=-1)]
    data = model(nodes, {"x": ["b", 2, "q", "k"], "mask": ["a", 1, 1, "m"]})
    artifact = farrier.compile(data, verify=False)
    assert not artifact.report["warnings"]
    sizes = [(3, 4, 5, 3, 5), (3, 4, 5, 1, 5), (2, 1, 6, 1, 1), (1, 3, 1, 1, 1), (0, 3, 4, 1, 4)]
    feeds = ({"x": f32(b, 2, q, k), "mask": f32(a, 1, 1, m)} for b, q, k, a, m in sizes)
    assert_as_onnxruntime(artifact, data, *feeds)
    with pytest.raises(InputMismatchError, match=r"node 's' .*; a must be b or 1"):
        artifact.run({"x": f32(3, 2, 1, 4), "mask": f32(2, 1, 1, 4)})


@pytest.mark.parametrize(
    "place", ["farrier.pipeline.finish", "farrier.compile_pool.choose.lower_region"]
)
def test_a_question_that_a_pass_or_a_kernel_leaves_open_names_the_dim(model, monkeypatch, place):
    def asks(graph, *_):
        (size, _) = graph.inputs[0].type.shape
        return size > 3

    monkeypatch.setattr(place, asks)
    nodes = [helper.make_node("Exp", ["x"], ["y"], "grows")]
    data = model(nodes, {"x": ["height", 4]}, ["y"])
    with pytest.raises(UnresolvedShapeError, match=r"height > 3.* depends on height in") as caught:
        farrier.compile(data, threads=1)
    assert "--shape" in caught.value.hint
    assert (" in 'grows'" in caught.value.message) is place.endswith("lower_region")
