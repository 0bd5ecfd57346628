"""Extents that values decide and no size bounds: where a run needs more room, it is made."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import farrier
from farrier.artifact.manifest import Manifest
from farrier.errors import InputMismatchError, MemoryLimitError
from farrier.options import CompileOptions
from farrier.pipeline import compile_model
from farrier.runtime.session import Session
from tests.control_flow.test_models import assert_as_onnxruntime, graph, info, model, node, normal

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ZERO, ONE = np.array(0), np.array(1)


def scalar(value, dtype=np.int64):
    return np.array(value, dtype)


def ranges(dtype=INT64):
    inputs = [info(name, dtype, []) for name in ("start", "limit", "step")]
    return model([node("Range", ["start", "limit", "step"], ["y"])], inputs, [info("y", dtype)])


def bounds(start, limit, step, dtype=np.int64):
    values = zip(("start", "limit", "step"), (start, limit, step), strict=True)
    return {name: scalar(value, dtype) for name, value in values}


INTEGERS = [(0, 10, 1), (5, -700, -3), (5, 7, -3), (0, 5000, 7), (3, 3, 1), (-2, -1, 1), (2, 9, 3)]
FLOATS = [(0, 1, 0.1), (1.5, -300, -0.7), (2, 1, 1), (0, 1, 5)]


def test_ranges_of_integers():
    assert_as_onnxruntime(ranges(), *(bounds(*case) for case in INTEGERS))


@pytest.mark.parametrize("kind", [(FLOAT, np.float32), (TensorProto.DOUBLE, np.float64)])
def test_ranges_of_floats(kind):
    code, dtype = kind
    assert_as_onnxruntime(ranges(code), *(bounds(*case, dtype) for case in FLOATS))


def test_room_grows_by_more_than_is_asked_for_and_stays():
    artifact = farrier.compile(ranges(), threads=1, verify=False)
    session, (capacity,) = artifact.session(), artifact.manifest.capacities
    seen = []
    for length in (
        1,
        capacity.first,
        capacity.first + 1,
        0,
        2 * capacity.first,
        5 * capacity.first,
    ):
        (y,) = session.run(bounds(0, length, 1)).values()
        np.testing.assert_array_equal(y, np.arange(length))
        seen.append(session._loaded._capacities[capacity.symbol] // capacity.first)
    assert seen == [1, 1, 2, 2, 2, 5]


def test_what_cannot_be_a_size_names_its_node():
    with pytest.raises(InputMismatchError, match=r"node 'y' .* the size -1 "):
        farrier.compile(ranges(), threads=1, verify=False).run(bounds(0, 5, 0))
    data = model(
        [node("ConstantOfShape", ["s"], ["filled"])], [info("s", INT64, [2])], [info("filled")]
    )
    artifact = farrier.compile(data, threads=1, verify=False)
    with pytest.raises(InputMismatchError, match=r"node 'filled' .* the size -3 "):
        artifact.run({"s": np.array([2, -3])})
    assert artifact.run({"s": np.array([2, 0])})["filled"].shape == (2, 0)


def test_an_absurd_size_is_refused_and_the_session_lives_on():
    artifact = farrier.compile(ranges(), threads=1, verify=False)
    with pytest.raises(MemoryLimitError, match=f"node 'y' .* extent of {1 << 60}"):
        artifact.run(bounds(0, 1 << 60, 1))
    limited = Session(artifact.manifest, artifact.code, artifact._load_params(), 1, 1 << 20)
    with pytest.raises(MemoryLimitError, match="it may have 1048576"):
        limited.run(bounds(0, 200_000, 1))
    assert limited.run(bounds(0, 100_000, 1))["y"].shape == (100_000,)
    np.testing.assert_array_equal(artifact.run(bounds(0, 3, 1))["y"], [0, 1, 2])


def test_products_of_absurd_sizes_do_not_wrap_around():
    data = model([node("ConstantOfShape", ["s"], ["y"])], [info("s", INT64, [2])], [info("y")])
    artifact = farrier.compile(data, threads=1, verify=False)
    with pytest.raises(MemoryLimitError):
        artifact.run({"s": np.array([1 << 33, 1 << 33])})


def test_a_manifest_with_capacities_reads_back():
    manifest = farrier.compile(ranges(), threads=1, verify=False).manifest
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_shapes_as_values(rank):
    nodes = [
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Add", ["zeros", "x"], ["y"]),
        node("Expand", ["x", "s"], ["e"]),
    ]
    data = model(nodes, [info("s", INT64, [rank]), info("x", FLOAT, [1])], [info("y"), info("e")])
    cases = [(1,) * rank, (40,) * rank, (3, 0, 2, 5)[:rank], (7, 30, 1, 2)[:rank]]
    assert_as_onnxruntime(data, *({"s": np.array(case), "x": normal(1)} for case in cases))


def test_a_size_that_stands_beside_known_ones():
    """One symbol for one value, however it comes to be part of a shape."""
    nodes = [
        node("Unsqueeze", ["n", "first"], ["last"]),
        node("Shape", ["x"], ["s"]),
        node("Concat", ["s", "last"], ["target"], axis=0),
        node("Unsqueeze", ["x", "second"], ["column"]),
        node("Expand", ["column", "target"], ["wide"]),
        node("ConstantOfShape", ["last"], ["zeros"]),
        node("Add", ["wide", "zeros"], ["y"]),
        node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    constants = {"first": np.array([0]), "second": np.array([1])}
    inputs = [info("n", INT64, []), info("x", FLOAT, [5])]
    data = model(nodes, inputs, [info("y"), info("total")], constants)
    artifact = assert_as_onnxruntime(
        data, *({"n": scalar(n), "x": normal(5)} for n in (3, 0, 1, 900))
    )
    assert len(artifact.manifest.capacities) == 1


def test_repeats_as_values():
    data = model(
        [node("Tile", ["x", "r"], ["y"])],
        [info("x", FLOAT, [2, 3]), info("r", INT64, [2])],
        [info("y")],
    )
    cases = ([1, 1], [3, 2], [0, 4], [50, 33])
    assert_as_onnxruntime(data, *({"x": normal(2, 3), "r": np.array(r)} for r in cases))


CHAIN = [
    node("Range", ["zero", "n", "one"], ["r"]),
    node("Mod", ["r", "three"], ["rest"]),
    node("NonZero", ["rest"], ["places"]),
    node("ReduceSum", ["r"], ["sum"], keepdims=0),
    node("Range", ["zero", "sum", "one"], ["y"]),
]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_size_that_is_computed_over_another(threads):
    """Each call may be made again for the first, and again for the second."""
    outputs = [info("y", INT64), info("places", INT64)]
    data = model(
        CHAIN, [info("n", INT64, [])], outputs, {"zero": ZERO, "one": ONE, "three": ONE * 3}
    )
    cases = ({"n": scalar(n)} for n in (3, 0, 300, 1, 2, 40))
    assert_as_onnxruntime(data, *cases, threads=threads)


def test_a_model_with_capacities_is_verified():
    artifact = farrier.compile(ranges(FLOAT), threads=1)
    assert artifact.report["verification"]["max_error"] == 0.0


def test_capacities_and_hot_sizes_in_one_artifact():
    nodes = [
        node("Unsqueeze", ["x", "first"], ["row"]),
        node("Shape", ["row"], ["s"]),
        node("Gather", ["s", "one"], ["width"]),
        node("Concat", ["n", "width"], ["target"], axis=0),
        node("Expand", ["row", "target"], ["y"]),
    ]
    constants = {"first": np.array([0]), "one": np.array([1])}
    inputs = [info("n", INT64, [1]), info("x", FLOAT, ["b"])]
    data = model(nodes, inputs, [info("y")], constants)
    options = CompileOptions(shapes={"x": ("b:1..64",)}, hot=({"b": 8},), threads=1, verify=False)
    artifact = compile_model(data, options)
    for width, count in ((8, 3), (5, 300), (8, 2000), (64, 0), (8, 1)):
        x = normal(width)
        (y,) = artifact.run({"x": x, "n": np.array([count])}).values()
        np.testing.assert_array_equal(y, np.broadcast_to(x, (count, width)))


def growing(conditional):
    """A row more in each iteration, and the sum of those so far."""
    body = graph(
        [
            node("Concat", ["rows", "row"], ["more"], axis=0),
            node("ReduceSum", ["rows"], ["sum"], keepdims=0),
            node("Less", ["i", "last"], ["again"])
            if conditional
            else node("Identity", ["b"], ["again"]),
        ],
        [info("i", INT64, []), info("b", BOOL, []), info("rows")],
        [info("again", BOOL), info("more"), info("sum")],
    )
    inputs = [info("trips", INT64, []), info("last", INT64, [])]
    inputs += [info("row", FLOAT, [1, 3]), info("x", FLOAT, [2, 3])]
    nodes = [node("Loop", ["trips", "yes", "x"], ["y", "sums"], body=body)]
    return model(nodes, inputs, [info("y"), info("sums")], {"yes": np.array(True)})


@pytest.mark.parametrize("conditional", [False, True])
def test_what_a_loop_carries_grows(conditional):
    cases = [
        {"trips": scalar(trips), "last": scalar(last), "row": normal(1, 3), "x": normal(2, 3)}
        for trips, last in ((5, 3), (0, 3), (1, 9), (40, 60), (700, 650), (2, 0))
    ]
    assert_as_onnxruntime(growing(conditional), *cases)


def test_attention_over_keys_that_grow():
    """Two carried tensors that grow alike have one extent: their products fit."""
    body = graph(
        [
            node("Concat", ["keys", "q"], ["more_keys"], axis=0),
            node("Tanh", ["q"], ["v"]),
            node("Concat", ["values", "v"], ["more_values"], axis=0),
            node("Transpose", ["more_keys"], ["turned"], perm=[1, 0]),
            node("MatMul", ["q", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["weights"], axis=-1),
            node("MatMul", ["weights", "more_values"], ["next"]),
            node("Identity", ["b"], ["again"]),
        ],
        [info("i", INT64, []), info("b", BOOL, []), info("q"), info("keys"), info("values")],
        [info("again", BOOL), info("next"), info("more_keys"), info("more_values"), info("next")],
    )
    nodes = [node("Loop", ["trips", "", "x", "k", "v0"], ["y", "ks", "vs", "steps"], body=body)]
    inputs = [info("trips", INT64, []), info("x", FLOAT, [1, 8])]
    inputs += [info("k", FLOAT, [2, 8]), info("v0", FLOAT, [2, 8])]
    data = model(nodes, inputs, [info(name) for name in ("y", "ks", "vs", "steps")])
    arrays = {"x": normal(1, 8), "k": normal(2, 8), "v0": normal(2, 8)}
    assert_as_onnxruntime(
        data, *({"trips": scalar(n), **arrays} for n in (1, 4, 300, 2)), threads=2
    )


def test_branches_of_different_shapes():
    twice = graph([node("Concat", ["x", "x"], ["t"], axis=0)], outputs=[info("t")])
    some = graph(
        [
            node("Greater", ["x", "zero"], ["holds"]),
            node("Reshape", ["holds", "all"], ["line"]),
            node("Compress", ["x", "line"], ["flat"]),
            node("Unsqueeze", ["flat", "last"], ["column"]),
            node("Expand", ["column", "four"], ["o"]),
        ],
        outputs=[info("o")],
        constants={
            "zero": np.float32(0),
            "all": np.array([-1]),
            "last": np.array([1]),
            "four": np.array([1, 4]),
        },
    )
    nodes = [
        node("If", ["c"], ["r"], then_branch=twice, else_branch=some),
        node("Exp", ["r"], ["y"]),
        node("ReduceSum", ["r"], ["total"], keepdims=0),
    ]
    inputs = [info("c", BOOL, []), info("x", FLOAT, [3, 4])]
    data = model(nodes, inputs, [info("y"), info("r"), info("total")])
    assert_as_onnxruntime(
        data, *({"c": np.array(c), "x": normal(3, 4)} for c in (True, False, True))
    )


def test_a_size_that_is_found_in_a_branch_and_in_a_loop():
    inner = graph([node("Range", ["zero", "n", "one"], ["a"])], outputs=[info("a", INT64)])
    other = graph([node("Neg", ["given"], ["o"])], outputs=[info("o", INT64)])
    body = graph(
        [
            node("Range", ["zero", "i", "one"], ["up"]),
            node("ReduceSum", ["up"], ["sum"], keepdims=0),
            node("Identity", ["b"], ["again"]),
        ],
        [info("i", INT64, []), info("b", BOOL, [])],
        [info("again", BOOL), info("sum", INT64)],
    )
    nodes = [
        node("If", ["c"], ["r"], then_branch=inner, else_branch=other),
        node("Loop", ["n", ""], ["sums"], body=body),
        node("Neg", ["r"], ["y"]),
    ]
    inputs = [info("c", BOOL, []), info("n", INT64, []), info("given", INT64, [3])]
    outputs = [info("y", INT64), info("sums", INT64)]
    data = model(nodes, inputs, outputs, {"zero": ZERO, "one": ONE})
    cases = [(True, 4), (False, 2), (True, 0), (True, 500), (False, 1)]
    assert_as_onnxruntime(
        data, *({"c": np.array(c), "n": scalar(n), "given": np.arange(3)} for c, n in cases)
    )


@st.composite
def programs(draw):
    """A model over the integers n and m: vectors of lengths that earlier ones decide."""
    nodes, vectors, scalars = [], [], ["n", "m"]
    for number in range(draw(st.integers(1, 5))):
        name = f"v{number}"
        op = draw(st.sampled_from(("Range", "ConstantOfShape", "NonZero", "Reduce", "Neg", "Tile")))
        size = draw(st.sampled_from(scalars))
        if op in ("Range", "ConstantOfShape", "Tile") or not vectors:
            nodes.append(node("Unsqueeze", [size, "first"], [f"{name}.s"]))
            if op == "ConstantOfShape":
                filled = onnx.numpy_helper.from_array(np.array([3]))
                nodes.append(node(op, [f"{name}.s"], [name], value=filled))
            elif op == "Tile" and vectors:
                nodes.append(node(op, [draw(st.sampled_from(vectors)), f"{name}.s"], [name]))
            else:
                nodes.append(node("Range", ["zero", size, "one"], [name]))
            vectors.append(name)
            continue
        source = draw(st.sampled_from(vectors))
        if op == "Reduce":
            nodes.append(node("ReduceMax", [f"{source}.z"], [name], keepdims=0))
            nodes.insert(-1, node("Concat", [source, "first"], [f"{source}.z"], axis=0))
            scalars.append(name)
        elif op == "NonZero":
            nodes.append(node("NonZero", [source], [f"{name}.p"]))
            nodes.append(node("Squeeze", [f"{name}.p", "first"], [name]))
            vectors.append(name)
        else:
            nodes.append(node("Sub", [source, "one"], [name]))
            vectors.append(name)
    definitions = {}
    for entry in nodes:  # Definitions of the same name are equal.
        definitions.setdefault(entry.output[0], entry)
    constants = {"zero": ZERO, "one": ONE, "first": np.array([0])}
    inputs = [info(name, INT64, []) for name in ("n", "m")]
    return model(list(definitions.values()), inputs, [info(v, INT64) for v in vectors], constants)


@settings(max_examples=12, deadline=None)
@given(
    data=programs(), sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4)
)
def test_random_models_in_one_session(data, sizes):
    artifact = farrier.compile(data, threads=1, verify=False)
    reference = ReferenceEvaluator(onnx.load_from_string(data))
    for n, m in [(0, 1), *sizes, (1, 0)]:
        inputs = {"n": scalar(n), "m": scalar(m)}
        try:
            actual = artifact.run(inputs)
        except MemoryLimitError:
            continue
        for wanted, ours in zip(reference.run(None, inputs), actual.values(), strict=True):
            np.testing.assert_array_equal(ours, wanted)
