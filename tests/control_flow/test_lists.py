"""Sequences whose length values or open dims decide, and sequences as outputs."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import farrier
import farrier.onnxruntime
from farrier.errors import InputMismatchError
from tests.control_flow.test_models import graph, info, model, node, normal

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def sequence(name):
    return helper.make_tensor_sequence_value_info(name, FLOAT, None)


def check(data, *cases):
    """Every output, a list of arrays for a sequence, is as ONNX Runtime's."""
    reference = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    session = farrier.compile(data, threads=1, verify=False).session()
    names = [output.name for output in reference.get_outputs()]
    for inputs in cases:
        actual = session.run(inputs)
        assert list(actual) == names
        for name, wanted in zip(names, reference.run(None, inputs), strict=True):
            assert isinstance(actual[name], list) == isinstance(wanted, list)
            lists = [
                value if isinstance(value, list) else [value] for value in (actual[name], wanted)
            ]
            for mine, other in zip(*lists, strict=True):
                assert mine.shape == other.shape
                np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_parts_of_an_open_axis():
    nodes = [
        node("SplitToSequence", ["x"], ["ones"], axis=1),
        node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0),
        node("SplitToSequence", ["x", "two"], ["pairs"], axis=1),
        node("ConcatFromSequence", ["rows"], ["turned"], axis=-1, new_axis=1),
        node("ConcatFromSequence", ["ones"], ["again"], axis=0),
        node("SequenceLength", ["pairs"], ["n"]),
    ]
    outputs = [sequence(name) for name in ("ones", "rows", "pairs")]
    outputs += [info("turned"), info("again"), info("n", INT64, [])]
    data = model(nodes, [info("x", FLOAT, ["a", "b"])], outputs, {"two": np.array(2)})
    check(data, *({"x": normal(*shape)} for shape in ((3, 4), (1, 5), (2, 1))))


def test_lengths_and_places_that_values_decide():
    nodes = [
        node("SplitToSequence", ["x", "lengths"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "p"], ["part"]),
        node("SplitToSequence", ["x", "step"], ["steps"], axis=0),
        node("SequenceConstruct", ["x", "y", "x"], ["three"]),
        node("SequenceAt", ["three", "p"], ["one"]),
        node("SequenceErase", ["three", "p"], ["two"]),
        node("SequenceInsert", ["two", "y", "p"], ["others"]),
    ]
    inputs = [info("x", FLOAT, ["n", 2]), info("y", FLOAT, ["n", 2])]
    inputs += [info("lengths", INT64, ["m"]), info("step", INT64, []), info("p", INT64, [])]
    outputs = [info("part"), sequence("steps"), info("one"), sequence("others")]
    data = model(nodes, inputs, outputs)

    def case(lengths, step, place):
        both = {name: normal(5, 2) for name in ("x", "y")}
        return both | {
            "lengths": np.array(lengths), "step": np.array(step), "p": np.array(place)
        }  # fmt: skip

    check(data, case([2, 3], 2, 1), case([1, 0, 4], 5, -2), case([2, 2, 1], 7, 0))
    session = farrier.compile(data, threads=1, verify=False).session()
    for bad, said in (
        (case([2, 3], 2, 2), "place in a sequence"),
        (case([2, 2], 2, 0), "fill the axis"),
        (case([2, 3], 0, 0), "length of parts"),
    ):
        with pytest.raises(InputMismatchError, match=said):
            session.run(bad)


def growing(nodes, constants=None):
    """A loop whose body makes `item` of iteration `i` and adds it to a list."""
    body = graph(
        [
            *nodes,
            node("SequenceInsert", ["list", "item"], ["more"]),
            node("Identity", ["c"], ["on"]),
        ],
        [info("i", INT64, []), info("c", BOOL, []), sequence("list")],
        [info("on", BOOL, []), sequence("more")],
        constants,
    )
    return [
        node("SequenceEmpty", [], ["nothing"], dtype=FLOAT),
        node("Loop", ["trips", "", "nothing"], ["grown"], body=body),
    ]


def test_a_list_grows_as_often_as_a_value_says():
    nodes = [
        *growing([node("Cast", ["i"], ["at"], to=FLOAT), node("Add", ["x", "at"], ["item"])]),
        node("ConcatFromSequence", ["grown"], ["flat"], axis=0),
        node("ConcatFromSequence", ["grown"], ["table"], axis=1, new_axis=1),
    ]
    inputs = [info("x", FLOAT, ["w"]), info("trips", INT64, [])]
    data = model(nodes, inputs, [sequence("grown"), info("flat"), info("table")])
    check(data, *({"x": normal(3), "trips": np.array(trips)} for trips in (1, 4, 300)))
    alone = farrier.compile(model(nodes[:2], inputs, [sequence("grown")]), threads=1, verify=False)
    assert alone.run({"x": normal(3), "trips": np.array(0)}) == {"grown": []}


# As torch's exporter writes repeat_interleave: each row as often as its duration says.
REPEATED = [
    node("Shape", ["d"], ["count"]),
    node("Squeeze", ["count"], ["trips"]),
    node("Expand", ["one", "count"], ["each"]),
    node("SplitToSequence", ["d", "each"], ["durations"], axis=0),
    node("SplitToSequence", ["x", "each"], ["rows"], axis=0),
    *growing(
        [
            node("SequenceAt", ["durations", "i"], ["duration"]),
            node("SequenceAt", ["rows", "i"], ["row"]),
            node("Concat", ["duration", "one"], ["shape"], axis=0),
            node("Expand", ["row", "shape"], ["item"]),
        ]
    ),
]


@pytest.fixture(scope="module")
def repeated():
    inputs = [info("x", FLOAT, ["t", 3]), info("d", INT64, ["t"])]
    nodes = [*REPEATED, node("ConcatFromSequence", ["grown"], ["y"], axis=0)]
    return model(nodes, inputs, [sequence("grown"), info("y")], {"one": np.array([1])})


def test_items_of_lengths_that_values_decide(repeated):
    durations = ([1, 2, 0, 3], [5], [0, 0, 1], [200, 100, 1, 7])
    check(repeated, *({"x": normal(len(d), 3), "d": np.array(d)} for d in durations))


def test_the_facade_returns_lists(repeated):
    options = {"verify": False, "cache": False}
    session = farrier.onnxruntime.InferenceSession(
        repeated, providers=[("FarrierExecutionProvider", options)]
    )
    x, d = normal(3, 3), np.array([2, 0, 1])
    grown, y = session.run(None, {"x": x, "d": d})
    for actual, wanted in zip(grown, np.split(np.repeat(x, d, axis=0), [2, 2]), strict=True):
        np.testing.assert_array_equal(actual, wanted)
    np.testing.assert_array_equal(y, np.repeat(x, d, axis=0))


def test_a_list_of_unlike_items_is_refused_with_a_way_out():
    nodes = growing(
        [
            node("Unsqueeze", ["i", "zero"], ["k"]),
            node("Concat", ["k", "k"], ["shape"], axis=0),
            node("Expand", ["x", "shape"], ["item"]),
        ]
    )
    inputs = [info("x", FLOAT, [1]), info("trips", INT64, [])]
    data = model(nodes, inputs, [sequence("grown")], {"zero": np.array([0])})
    with pytest.raises(farrier.FarrierError, match=r"'grown' \(Loop\): .* differ along the axes"):
        farrier.compile(data, threads=1, verify=False)
