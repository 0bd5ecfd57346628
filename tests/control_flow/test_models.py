"""ONNX models with If, Loop, Scan and sequences, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import import_model
from farrier.onnx_backend import backend as onnx_backend

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RANDOM = np.random.default_rng(0)


def info(name, dtype=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def graph(nodes, inputs=(), outputs=(), constants=None):
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    return helper.make_graph(nodes, "g", list(inputs), list(outputs), tensors)


def model(nodes, inputs, outputs, constants=None, opset=17):
    proto = helper.make_model(
        graph(nodes, inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    return proto.SerializeToString()


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def assert_as_onnxruntime(data, *cases, threads=1, shapes=None, atol=1e-5):
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = farrier.compile(data, threads=threads, verify=False, shapes=shapes)
    for inputs in cases:
        expected = session.run(None, inputs)
        for wanted, actual in zip(expected, artifact.run(inputs).values(), strict=True):
            assert actual.dtype == wanted.dtype
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=atol)
    return artifact


def branching(condition, shape=(2, 3)):
    """Each branch reads what stands around it: an input, a weight, and a value computed there."""
    then = graph(
        [node("MatMul", ["h", "w"], ["m"]), node("Relu", ["m"], ["a"])], outputs=[info("a")]
    )
    inner = graph([node("Sub", ["h", "x"], ["i"])], outputs=[info("i")])
    deep = graph([node("Exp", ["h"], ["j"])], outputs=[info("j")])
    otherwise = graph(
        [
            node("ReduceMax", ["h"], ["top"], keepdims=0),
            node("Greater", ["top", "one"], ["large"]),
            node("If", ["large"], ["n"], then_branch=inner, else_branch=deep),
        ],
        outputs=[info("n")],
        constants={"one": np.float32(1)},
    )
    nodes = [
        node("Add", ["x", "bias"], ["h"]),
        node("If", [condition], ["r"], then_branch=then, else_branch=otherwise),
        node("Mul", ["r", "h"], ["y"]),
    ]
    constants = {"w": normal(3, 3), "bias": normal(3), "yes": np.array(True)}
    inputs = [info("x", FLOAT, shape)] + ([info("c", BOOL, [])] if condition == "c" else [])
    return model(nodes, inputs, [info("y")], constants)


@pytest.mark.parametrize("threads", [1, 2])
def test_branches_by_data(threads):
    cases = [
        {"c": np.array(c), "x": x} for c in (True, False) for x in (normal(2, 3), normal(2, 3) - 9)
    ]
    assert_as_onnxruntime(branching("c"), *cases, threads=threads)


def test_a_condition_that_is_known_leaves_no_branch():
    imported = import_model(branching("yes"))
    assert [n.op for n in imported.graph.nodes] == ["Add", "MatMul", "Relu", "Mul"]
    assert_as_onnxruntime(branching("yes"), {"x": normal(2, 3)})


def test_a_weight_that_a_region_reads_is_a_constant_of_it():
    """So its kernel packs it as others do."""
    artifact = farrier.compile(branching("c"), threads=1, verify=False)
    assert artifact.report["size"]["weights_bytes"] >= 9 * 4
    (product,) = (k for k in artifact.manifest.kernels if k.name.startswith("matmul"))
    assert not product.rule.startswith("sketch/")


def looping(trips, condition, body_condition, extra=()):
    """h ← tanh(h·w + h0), h0 from outside; goes on while the sum is below a limit."""
    body = graph(
        [
            node("MatMul", ["h", "w"], ["m"]),
            node("Add", ["m", "h0"], ["s"]),
            node("Tanh", ["s"], ["h_next"]),
            node("ReduceSum", ["h_next"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["below"]),
            node("Cast", ["i"], ["number"], to=FLOAT),
            node("Add", ["count", "number"], ["count_next"]),
            node("Identity", [body_condition], ["go"]),
            *extra,
        ],
        [info("i", INT64, []), info("cond", BOOL, []), info("h"), info("count")],
        [info("go", BOOL), info("h_next"), info("count_next"), *(info("part") for _ in extra)],
        {"limit": np.float32(1.5)},
    )
    outputs = ["h_last", "count_last", *("parts" for _ in extra)]
    nodes = [
        node("Mul", ["x", "x"], ["h0"]),
        node("Loop", [trips, condition, "h0", "zero"], outputs, body=body),
        node("Neg", ["h_last"], ["y"]),
    ]
    inputs = [info("x", FLOAT, [2, 5])]
    inputs += [info("n", INT64, [])] * (trips == "n") + [info("c", BOOL, [])] * (condition == "c")
    constants = {"w": normal(5, 5), "zero": np.zeros((), np.float32), "many": np.int64(20)}
    results = [info("y"), *map(info, outputs[1:])]
    return model(nodes, inputs, results, constants)


def test_a_loop_by_count():
    cases = [{"n": np.array(n), "x": normal(2, 5)} for n in (0, 1, 2, 5)]
    assert_as_onnxruntime(looping("n", "", "cond"), *cases)


def test_a_loop_by_condition():
    cases = [
        {"c": np.array(c), "x": scale * normal(2, 5)} for c in (True, False) for scale in (0.1, 1)
    ]
    assert_as_onnxruntime(looping("", "c", "below"), *(c for c in cases if not c["c"]))
    assert_as_onnxruntime(looping("many", "c", "below"), *cases)


def test_what_a_loop_returns_of_each_iteration_is_stacked():
    data = looping("many", "", "cond", extra=[node("Exp", ["h_next"], ["part"])])
    artifact = assert_as_onnxruntime(data, {"x": normal(2, 5)})
    assert max(kernel.calls for kernel in artifact.manifest.kernels) == 20
    assert artifact.manifest.outputs[2].shape == (20, 2, 5)


def test_how_much_a_loop_returns_may_be_decided_by_its_condition():
    """The loop ends within its trip count; later operators see the extent that it decided."""
    extra = [node("Exp", ["h_next"], ["part"])]
    data = looping("many", "c", "below", extra=extra)
    cases = [{"c": np.array(True), "x": scale * normal(2, 5)} for scale in (0.1, 1, 2, 3)]
    artifact = assert_as_onnxruntime(data, *cases)
    assert artifact.manifest.outputs[2].typical == (20, 2, 5)
    assert len({len(artifact.run(case)["parts"]) for case in cases}) > 1
    # Without an iteration ONNX Runtime has forgotten the shape.
    assert artifact.run({"c": np.array(False), "x": normal(2, 5)})["parts"].shape == (0, 2, 5)


def test_how_much_a_loop_returns_needs_no_bound():
    data = looping("n", "", "cond", extra=[node("Exp", ["h_next"], ["part"])])
    cases = ({"n": np.array(n), "x": 0.1 * normal(2, 5)} for n in (3, 1, 300, 2))
    # What an iteration rounds, 300 of them may magnify.
    assert_as_onnxruntime(data, *cases, atol=2e-3)


def growing(trips):
    """Append a row an iteration, cut from `x` where the iteration says."""
    body = graph(
        [
            node("Add", ["i", "one"], ["end"]),
            node("Unsqueeze", ["i", "axis"], ["first"]),
            node("Unsqueeze", ["end", "axis"], ["last"]),
            node("Slice", ["x", "first", "last"], ["row"]),
            node("Concat", ["all", "row"], ["more"], axis=0),
            node("Identity", ["cond"], ["go"]),
        ],
        [info("i", INT64, []), info("cond", BOOL, []), info("all")],
        [info("go", BOOL), info("more")],
        {"one": np.int64(1), "axis": np.array([0])},
    )
    nodes = [node("Loop", [trips, "", "start"], ["y"], body=body)]
    inputs = [info("x", FLOAT, [5, 3]), info("start", FLOAT, [1, 3])]
    inputs += [info("n", INT64, [])] * (trips == "n")
    return model(nodes, inputs, [info("y")], {"four": np.int64(4)})


def test_a_loop_whose_shapes_grow_is_unrolled():
    artifact = assert_as_onnxruntime(growing("four"), {"x": normal(5, 3), "start": normal(1, 3)})
    assert artifact.manifest.outputs[0].shape == (5, 3)


def test_a_loop_grows_as_often_as_a_value_says_by_what_it_cuts():
    feeds = {"x": normal(5, 3), "start": normal(1, 3)}
    assert_as_onnxruntime(growing("n"), *({**feeds, "n": np.array(n)} for n in (4, 0, 1, 7)))


def scanning(length, batch=False, **attrs):
    body = graph(
        [
            node("MatMul", ["h", "w"], ["m"]),
            node("Add", ["m", "row"], ["s"]),
            node("Tanh", ["s"], ["next"]),
            node("ReduceSum", ["next"], ["part"], keepdims=0),
            node("Add", ["next", "other"], ["wide"]),
        ],
        [info("h"), info("row"), info("other")],
        [info("next"), info("part"), info("wide")],
    )
    scan = node(
        "Scan", ["h0", "x", "z"], ["y", "parts", "all"], body=body, num_scan_inputs=2, **attrs
    )
    axes = attrs.get("scan_input_axes", [0, 0])
    shapes = [[length, 3], [length, 3]]
    shapes = [s if axis == 0 else s[::-1] for s, axis in zip(shapes, axes, strict=True)]
    inputs = [info("h0", FLOAT, [1, 3]), *map(info, "xz", [FLOAT] * 2, shapes)]
    return model([scan], inputs, [info("y"), info("parts"), info("all")], {"w": normal(3, 3)})


@pytest.mark.parametrize("length", [1, 3, 40])
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"scan_input_axes": [1, 0], "scan_input_directions": [1, 0]},
        {"scan_output_axes": [0, -1], "scan_output_directions": [1, 1]},
    ],
    ids=["plain", "inputs turned", "outputs turned"],
)
def test_scan(length, attrs):
    """Short ones are unrolled, the long one is a loop."""
    data = scanning(length, **attrs)
    shapes = {info.name: info.shape for info in farrier_inputs(data)}
    assert_as_onnxruntime(data, {name: normal(*shape) for name, shape in shapes.items()})
    loops = [n for n in import_model(data).graph.nodes if n.op == "Loop"]
    assert len(loops) == (length == 40)


def farrier_inputs(data):
    imported = import_model(data)
    return [
        type("Input", (), {"name": name, "shape": value.type.static_shape})
        for name, value in zip(imported.input_names, imported.graph.inputs, strict=True)
    ]


def test_sequences_of_tensors():
    body = graph(
        [
            node("SequenceAt", ["parts", "i"], ["part"]),
            node("Exp", ["part"], ["e"]),
            node("SequenceInsert", ["done", "e"], ["more"]),
            node("Identity", ["cond"], ["go"]),
        ],
        [
            info("i", INT64, []),
            info("cond", BOOL, []),
            helper.make_tensor_sequence_value_info("done", FLOAT, None),
        ],
        [info("go", BOOL), helper.make_tensor_sequence_value_info("more", FLOAT, None)],
    )
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        node("SequenceLength", ["parts"], ["count"]),
        node("SequenceEmpty", [], ["none"], dtype=FLOAT),
        node("Loop", ["count", "", "none"], ["all"], body=body),
        node("SequenceErase", ["all", "first"], ["some"]),
        node("SequenceInsert", ["some", "x", "first"], ["final"]),
        node("ConcatFromSequence", ["final"], ["y"], axis=1),
    ]
    data = model(
        nodes,
        [info("x", FLOAT, [2, 6])],
        [info("y")],
        {"sizes": np.array([1, 2, 3]), "first": np.int64(0)},
    )
    assert_as_onnxruntime(data, {"x": normal(2, 6)})


@pytest.mark.parametrize(("place", "message"), [(3, "place 3 of 2"), (-3, "place -3 of 2")])
def test_a_place_that_a_sequence_has_not(place, message):
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceAt", ["s", "at"], ["y"]),
    ]
    data = model(nodes, [info("x", FLOAT, [2])], [info("y")], {"at": np.int64(place)})
    with pytest.raises(InvalidModelError, match=message):
        import_model(data)


def test_a_sequence_is_no_tensor():
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("Relu", ["s"], ["y"])]
    proto = helper.make_model(
        graph(nodes, [info("x", FLOAT, [2])], [info("y")]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    with pytest.raises(InvalidModelError, match="'s' is a sequence, and must be a tensor"):
        import_model(proto.SerializeToString())


def test_sequences_and_optionals_at_both_ends():
    """ONNX's backend interface takes and returns lists; each tensor of one is an input or output of
    the compiled model."""
    sequence = helper.make_tensor_sequence_value_info
    wrapped = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    nodes = [
        node("SequenceInsert", ["s", "x"], ["t"]),
        node("OptionalHasElement", ["o"], ["has"]),
        node("SequenceLength", ["s"], ["n"]),
    ]
    g = graph(
        nodes,
        [sequence("s", FLOAT, None), info("x", FLOAT, [3]), helper.make_value_info("o", wrapped)],
        [sequence("t", FLOAT, None), info("has", BOOL, []), info("n", INT64, [])],
    )
    proto = helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    backend = onnx_backend.prepare(proto, threads=1)
    x = normal(3)
    for items in ([], [normal(2)], [normal(2), normal(4)]):
        for optional in (None, normal(2)):
            actual, has, count = backend.run([items, x, optional])
            for array, wanted in zip(actual, [*items, x], strict=True):
                np.testing.assert_array_equal(array, wanted)
            assert bool(has) == (optional is not None)
            assert count == len(items)


def test_scan_of_any_length():
    """The trip count is an open dim, and so is the length of the stacked output."""
    body = graph(
        [
            node("MatMul", ["h", "w"], ["m"]),
            node("Add", ["m", "row"], ["s"]),
            node("Tanh", ["s"], ["next"]),
            node("Identity", ["next"], ["part"]),
        ],
        [info("h"), info("row")],
        [info("next"), info("part")],
    )
    scan = node("Scan", ["h0", "x"], ["y", "parts"], body=body, num_scan_inputs=1)
    inputs = [info("h0", FLOAT, [1, 5]), info("x", FLOAT, ["steps", 5])]
    data = model([scan], inputs, [info("y"), info("parts")], {"w": normal(5, 5)})
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = farrier.compile(data, shapes={"x": ("steps:1..40", 5)}, threads=1, verify=False)
    for steps in (1, 2, 7, 40):
        feeds = {"h0": normal(1, 5), "x": normal(steps, 5)}
        for wanted, actual in zip(
            session.run(None, feeds), artifact.run(feeds).values(), strict=True
        ):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", [-2, -1, 0, 1, 2])
def test_a_negative_place_of_an_insertion_counts_from_the_end(place):
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["two"]),
        node("Neg", ["x"], ["z"]),
        node("SequenceInsert", ["two", "z", "place"], ["three"]),
        node("ConcatFromSequence", ["three"], ["y"], axis=0),
    ]
    data = model(nodes, [info("x", FLOAT, [1, 3])], [info("y")], {"place": np.int64(place)})
    assert_as_onnxruntime(data, {"x": normal(1, 3)})


def test_an_insertion_among_tensors_of_different_lengths_is_before_any_place():
    nodes = [
        # The parts have lengths 2, 2 and 1.
        node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
        node("Neg", ["x"], ["z"]),
        node("SequenceInsert", ["parts", "z", "place"], ["more"]),
        node("ConcatFromSequence", ["more"], ["y"], axis=1),
        node("SequenceAt", ["more", "place"], ["item"]),
    ]
    inputs = [info("x", FLOAT, [2, 5]), info("place", INT64, [])]
    data = model(nodes, inputs, [info("y"), info("item")], {"two": np.int64(2)})
    assert_as_onnxruntime(data, *({"x": normal(2, 5), "place": np.array(p)} for p in range(-3, 3)))
