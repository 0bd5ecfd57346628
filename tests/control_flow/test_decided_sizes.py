"""Lengths that values decide, and operators that need some of them: right, or an error that names
both nodes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import farrier
from farrier.errors import InputMismatchError, UnresolvedShapeError
from tests.control_flow.test_models import graph, info, model, node, normal

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = normal(1, 4, 9)
W = normal(3, 4, 3)


def cut(nodes, constants=None, inputs=(), outputs=("y",), opset=17):
    """The nodes make the outputs of `s`, the first n of nine columns."""
    return model(
        [node("Slice", ["x", "z", "n", "a"], ["s"], name="cut"), *nodes],
        [info("x", FLOAT, [1, 4, 9]), info("n", INT64, [1]), *inputs],
        [info(name) for name in outputs],
        {"z": np.array([0]), "a": np.array([2]), **(constants or {})},
        opset,
    )


def check(data, *cases, least=0):
    """Each run is as ONNX Runtime's; where `least` columns are needed and there are fewer, both
    refuse it."""
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    session = farrier.compile(data, threads=1, verify=False).session()
    for inputs in cases:
        if inputs["n"][0] < least:
            with pytest.raises(InputMismatchError, match=rf"'cut' .* needs {least} or more"):
                session.run(inputs)
            with pytest.raises(Exception, match="Non-zero status"):
                reference.run(None, inputs)
            continue
        for actual, wanted in zip(
            session.run(inputs).values(), reference.run(None, inputs), strict=True
        ):
            assert actual.dtype == wanted.dtype
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


def lengths(*numbers):
    return [{"x": X, "n": np.array([number])} for number in numbers]


CASES = {
    "a convolution": (3, [node("Conv", ["s", "w"], ["y"])], {"w": W}),
    "one with pads": (1, [node("Conv", ["s", "w"], ["y"], pads=[1, 1], strides=[2])], {"w": W}),
    "one that covers": (1, [node("Conv", ["s", "w"], ["y"], auto_pad="SAME_LOWER")], {"w": W}),
    "a transposed one": (
        1,
        [node("ConvTranspose", ["s", "w"], ["y"], strides=[2], pads=[1, 1])],
        {"w": normal(4, 3, 4)},
    ),
    "a pool": (1, [node("MaxPool", ["s"], ["y"], kernel_shape=[3], pads=[1, 1])], {}),
    "a reflection": (
        2,
        [node("Pad", ["s", "p"], ["y"], mode="reflect")],
        {"p": [0, 0, 1, 0, 0, 1]},
    ),
    "the two largest": (2, [node("TopK", ["s", "k"], ["y", "i"], axis=2)], {"k": [2]}),
    "a spectrum": (
        2,
        [
            node("Gather", ["s", "first"], ["row"], axis=1),
            node("STFT", ["row", "step", "window", "size"], ["y"]),
        ],
        {"first": 0, "step": 1, "window": np.ones(2, np.float32), "size": 2},
    ),
    "nearest neighbours": (
        0,
        [node("Resize", ["s", "", "r"], ["y"])],
        {"r": np.float32([1, 1, 2])},
    ),
    "sums": (0, [node("CumSum", ["s", "a"], ["y"])], {}),
    "shares": (0, [node("Softmax", ["s"], ["y"], axis=2)], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_length_below_what_an_operator_needs_is_an_error_of_the_call(case):
    least, nodes, constants = CASES[case]
    data = cut(nodes, {name: np.array(value) for name, value in constants.items()})
    check(data, *lengths(least, 9, *range(least)), least=least)


def test_a_pool_rounded_up_may_have_no_whole_window():
    nodes = [node("MaxPool", ["s"], ["y"], kernel_shape=[3], strides=[2], ceil_mode=1)]
    check(cut(nodes), *lengths(2, 3, 9))


def test_instance_normalization():
    nodes = [node("InstanceNormalization", ["s", "g", "b"], ["y"])]
    check(cut(nodes, {"g": normal(4), "b": normal(4)}), *lengths(1, 5, 9))


def test_a_length_must_be_a_multiple_and_another_a_number():
    data = cut(
        [node("Reshape", ["s", "by_three"], ["y"]), node("Concat", ["s", "c"], ["z2"], axis=1)],
        {"by_three": np.array([1, 3, -1]), "c": normal(1, 2, 6)},
        outputs=("y", "z2"),
    )
    check(data, *lengths(6))
    artifact = farrier.compile(data, threads=1, verify=False)
    for inputs in lengths(5, 3, 9):
        with pytest.raises(InputMismatchError, match=r"'cut' .* needs "):
            artifact.run(inputs)


@pytest.mark.parametrize("first", ["n", "m"])
def test_two_lengths_must_be_equal(first):
    other = {"n": "m", "m": "n"}[first]
    ends = [node("Slice", ["x", "z", end, "a"], [f"to_{end}"]) for end in (first, other)]
    data = model(
        [*ends, node("Add", ["to_n", "to_m"], ["y"])],
        [info("x", FLOAT, [1, 4, 9]), info("n", INT64, [1]), info("m", INT64, [1])],
        [info("y")],
        {"z": np.array([0]), "a": np.array([2])},
    )
    artifact = farrier.compile(data, threads=1, verify=False)
    for size in (0, 4, 9):
        actual = artifact.run({"x": X, "n": np.array([size]), "m": np.array([size])})["y"]
        np.testing.assert_array_equal(actual, 2 * X[..., :size])
    with pytest.raises(InputMismatchError, match=f"'to_{other}' .* 'y' .* needs .*to_{first}"):
        artifact.run({"x": X, "n": np.array([4]), "m": np.array([5])})


def test_what_an_operator_counts_may_be_too_few():
    nodes = [
        node("Compress", ["x", "c"], ["s"], axis=2, name="cut"),
        node("Conv", ["s", "w"], ["v"], pads=[1, 0]),
        node("MaxPool", ["s"], ["p"], kernel_shape=[2]),
        node("Add", ["v", "b"], ["y"]),
    ]
    data = model(
        nodes,
        [info("x", FLOAT, [1, 4, 9]), info("c", BOOL, [9])],
        [info("y"), info("p")],
        {"w": W, "b": normal(1, 3, 1)},
    )
    keep = [np.arange(9) % 2 == 0, np.arange(9) < 2, np.ones(9, bool)]
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = farrier.compile(data, threads=1, verify=False)
    for kept in keep:
        inputs = {"x": X, "c": kept}
        for actual, wanted in zip(
            artifact.run(inputs).values(), reference.run(None, inputs), strict=True
        ):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputMismatchError, match=r"'cut' .* gets 1 .* needs 2 or more"):
        artifact.run({"x": X, "c": np.arange(9) == 3})


def test_a_branch_that_is_not_taken_needs_nothing():
    """The convolution's need is the branch's alone; so is that of a length defined in it."""
    pool = [
        node("Slice", ["s", "z", "one", "a"], ["inner"]),
        node("MaxPool", ["inner"], ["q"], kernel_shape=[1]),
        node("Conv", ["s", "w"], ["v"]),
        node("ReduceMax", ["q"], ["top"], keepdims=0),
        node("Add", ["v", "top"], ["t"]),
        node("ReduceSum", ["t"], ["r"], keepdims=0),
    ]
    then = graph(pool, outputs=[info("r")])
    otherwise = graph([node("ReduceSum", ["s"], ["u"], keepdims=0)], outputs=[info("u")])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise)]
    data = cut(nodes, {"w": W, "one": np.array([1])}, [info("c", BOOL, [])])
    cases = [{**inputs, "c": np.array(True)} for inputs in lengths(3, 9)]
    cases += [{**inputs, "c": np.array(False)} for inputs in lengths(0, 2, 9)]
    check(data, *cases)
    artifact = farrier.compile(data, threads=1, verify=False)
    with pytest.raises(InputMismatchError):
        artifact.run({**lengths(2)[0], "c": np.array(True)})


def test_what_a_loop_and_a_condition_return():
    """A loop appends a row in each iteration, a condition drops the first: a pool needs two."""
    body = graph(
        [node("Identity", ["go"], ["on"]), node("Concat", ["rows", "row"], ["more"], axis=0)],
        [info("i", INT64, []), info("go", BOOL, []), info("rows", FLOAT, None)],
        [info("on", BOOL), info("more")],
    )
    drops = graph([node("Slice", ["grown", "o", "end", "z"], ["d"])], outputs=[info("d")])
    keeps = graph([node("Identity", ["grown"], ["k"])], outputs=[info("k")])
    pool = {"kernel_shape": [2, 1]}
    data = model(
        [
            node("Loop", ["trips", "", "row"], ["grown"], body=body, name="grows"),
            node("If", ["c"], ["chosen"], then_branch=drops, else_branch=keeps, name="drops"),
            *(node("Unsqueeze", [name, "axes"], [name + "4"]) for name in ("grown", "chosen")),
            node("AveragePool", ["grown4"], ["y"], **pool),
            node("AveragePool", ["chosen4"], ["v"], **pool),
        ],
        [info("row", FLOAT, [1, 4]), info("trips", INT64, []), info("c", BOOL, [])],
        [info("y"), info("v")],
        {"z": np.array([0]), "o": np.array([1]), "end": np.array([99]), "axes": np.array([0, 1])},
    )
    reference, session = _sessions(data)
    row = normal(1, 4)
    for trips, drops_it, culprit in (
        (1, False, ""),
        (7, True, ""),
        (300, True, ""),
        (0, False, "grows"),
        (1, True, "drops"),
    ):
        inputs = {"row": row, "trips": np.array(trips), "c": np.array(drops_it)}
        if culprit:
            with pytest.raises(InputMismatchError, match=f"'{culprit}' .* gets 1 .* 2 or more"):
                session.run(inputs)
            continue
        for actual, wanted in zip(
            session.run(inputs).values(), reference.run(None, inputs), strict=True
        ):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


def repeated(durations, frames):
    """The rows of `frames`, each as often as its duration says: a length regulator."""
    return np.repeat(frames, durations, axis=0)


@pytest.fixture(scope="module")
def regulator():
    """Durations → a path of ones, as VITS, FastSpeech and Kokoro have it, then two convolutions."""
    nodes = [
        node("CumSum", ["d", "zero"], ["ends"]),
        node("ReduceSum", ["d"], ["total"], keepdims=0),
        node("Range", ["zero", "total", "step"], ["at"]),
        node("Unsqueeze", ["at", "last"], ["column"]),
        node("Less", ["column", "ends"], ["below"]),
        node("Cast", ["below"], ["ones"], to=FLOAT),
        node("Pad", ["ones", "pads"], ["moved"]),
        node("Sub", ["ones", "moved"], ["path"]),
        node("MatMul", ["path", "x"], ["frames"]),
        node("Transpose", ["frames"], ["lines"], perm=[1, 0]),
        node("Unsqueeze", ["lines", "first"], ["image"]),
        node("Conv", ["image", "w"], ["v"], pads=[1, 1]),
        node("ConvTranspose", ["v", "u"], ["wave"], strides=[2]),
    ]
    return model(
        nodes,
        [info("x", FLOAT, ["t", 4]), info("d", INT64, ["t"])],
        [info("frames"), info("wave")],
        {
            "zero": np.array(0),
            "step": np.array(1),
            "last": np.array([1]),
            "first": np.array([0]),
            "pads": np.array([0, 1, 0, -1]),
            "w": W,
            "u": normal(3, 1, 2),
        },
    )


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=20))
def test_a_length_regulator(regulator, durations):
    reference, session = _sessions(regulator)
    inputs = {"x": normal(len(durations), 4), "d": np.array(durations)}
    if not sum(durations):
        with pytest.raises(InputMismatchError, match=r"'at' .* 'v' .* needs 1 or more"):
            session.run(inputs)
        return
    frames, wave = session.run(inputs).values()
    np.testing.assert_allclose(frames, repeated(durations, inputs["x"]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(wave, reference.run(["wave"], inputs)[0], rtol=1e-4, atol=1e-4)


_MADE = {}


def _sessions(data):
    if data not in _MADE:
        reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        _MADE[data] = reference, farrier.compile(data, threads=1, verify=False).session()
    return _MADE[data]


def test_a_number_that_values_decide_is_a_refusal_that_names_its_node():
    """An index's number of axes decides the operation; no size from the user could settle it."""
    nodes = [node("Slice", ["i", "z", "n", "z"], ["t"]), node("GatherND", ["x", "t"], ["y"])]
    with pytest.raises(UnresolvedShapeError, match=r"'y' \(GatherND\): .*size\[t\]") as refusal:
        farrier.compile(cut(nodes, {"i": np.array([0, 1, 2])}), threads=1, verify=False)
    assert "'t'" in (refusal.value.hint or "")


def test_masks_that_are_computed_alike_count_alike():
    """As exporters write `y[mask] = x[mask]`: the mask expanded to its own shape, counted twice."""
    nodes = [
        node("Greater", ["x", "zero"], ["mask"]),
        node("Shape", ["x"], ["shape"]),
        node("Expand", ["mask", "shape"], ["wide"]),
        *(node("NonZero", [name], [f"{name}_at"]) for name in ("mask", "wide")),
        *(node("Transpose", [f"{name}_at"], [f"{name}_rows"]) for name in ("mask", "wide")),
        node("GatherND", ["x", "mask_rows"], ["taken"]),
        node("Neg", ["x"], ["others"]),
        node("ScatterND", ["others", "wide_rows", "taken"], ["y"]),
    ]
    data = model(
        nodes, [info("x", FLOAT, ["rows", 3])], [info("y")], {"zero": np.float32(0)}, opset=18
    )
    artifact = farrier.compile(data, threads=1, verify=False)
    assert not artifact.manifest.preconditions
    for x in (normal(7, 3), -np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)):
        np.testing.assert_array_equal(artifact.run({"x": x})["y"], np.abs(x))


def test_a_cut_that_shapes_decide_asks_for_the_sizes_that_make_it_a_formula():
    """Relative positions as FastSpeech has them: the table's middle, and a shift that needs to know
    how many there are."""
    nodes = [
        node("Shape", ["x"], ["t"], start=0, end=1),
        node("Sub", ["middle", "t"], ["start"]),
        node("Add", ["middle", "t"], ["end"]),
        node("Slice", ["table", "start", "end"], ["near"]),
        node("Slice", ["near", "one", "last"], ["later"]),
        node("Slice", ["later", "zero", "t"], ["own"]),
        node("Add", ["x", "own"], ["y"]),
    ]
    table = normal(400, 2)
    data = model(
        nodes,
        [info("x", FLOAT, ["tokens", 2])],
        [info("y")],
        {"middle": [200], "table": table, "one": [1], "last": [999], "zero": [0]},
    )
    artifact = farrier.compile(data, threads=1, verify=False)
    for tokens in (1, 9, 128, 200):
        x = normal(tokens, 2)
        start = 200 - tokens + 1
        np.testing.assert_allclose(
            artifact.run({"x": x})["y"], x + table[start : start + tokens], rtol=1e-6
        )
