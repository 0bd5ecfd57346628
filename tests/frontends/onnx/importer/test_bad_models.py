"""The messages for bytes that are not a model that Farrier compiles."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import InvalidModelError, UnresolvedShapeError, UnsupportedOperatorError
from farrier.frontends.onnx.importer import import_model

node = helper.make_node


def test_empty():
    with pytest.raises(InvalidModelError, match="0 bytes"):
        import_model(b"")


@pytest.mark.parametrize("data", [b"not a model", b"\x89PNG\r\n\x1a\n" + bytes(64), b"\xff" * 99])
def test_not_protobuf(data):
    with pytest.raises(InvalidModelError):
        import_model(data)


def test_truncated(model):
    whole = model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": [1, 9]}, constants={"w": np.ones((9, 9))}
    )
    for length in range(1, len(whole), 7):
        with pytest.raises(InvalidModelError):
            import_model(whole[:length])


def test_every_flipped_byte_is_refused_or_read(model):
    """No byte of a file can crash the import with anything but an error for the user."""
    from farrier.errors import FarrierError

    whole = model(
        [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["y"])],
        {"x": [1, 2, 5, 5]},
        constants={"w": np.ones((3, 2, 3, 3), np.float32)},
    )
    survived = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x15
        try:
            import_model(bytes(damaged))
            survived += 1
        except FarrierError:
            pass
    assert 0 < survived < len(whole)


def test_no_graph():
    with pytest.raises(InvalidModelError, match="no graph"):
        import_model(onnx.ModelProto(ir_version=8).SerializeToString())


@pytest.mark.parametrize("opset", [0, 29, 99])
def test_opset_out_of_range(model, opset):
    with pytest.raises(InvalidModelError, match=f"opset {opset}; Farrier reads 1 to"):
        import_model(model([node("Relu", ["x"], ["y"])], {"x": [1]}, opset=opset))


def test_no_opset(model):
    proto = onnx.load_from_string(model([node("Relu", ["x"], ["y"])], {"x": [1]}))
    del proto.opset_import[:]
    with pytest.raises(InvalidModelError, match="which opset"):
        import_model(proto.SerializeToString())


def test_a_message_in_memory_leads_to_no_file(model, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(12))
    proto = onnx.load_from_string(
        model([node("Add", ["x", "w"], ["y"])], {"x": [3]}, constants={"w": np.ones(3, np.float32)})
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(secret))
    with pytest.raises(InvalidModelError, match=r"'w' is in the data file .* an absolute path"):
        import_model(proto.SerializeToString())


def test_unknown_operators_are_listed_all_at_once(model):
    nodes = [
        node("Frobnicate", ["x"], ["a"], name="first"),
        node("Frobnicate", ["a"], ["b"]),
        node("FusedGelu", ["b"], ["y"], name="third", domain="com.example"),
    ]
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(model(nodes, {"x": [3]}))
    assert "Frobnicate ×2 (first: 'first')" in caught.value.message
    assert "com.example:FusedGelu ×1 (first: 'third')" in caught.value.message


def test_unsupported_form_of_a_known_operator(model):
    data = model(
        [node("Resize", ["x", "", "s"], ["y"], nearest_mode="up", name="up")],
        {"x": [1, 1, 4, 4]},
        constants={"s": np.array([1, 1, 2, 2], np.float32)},
    )
    with pytest.raises(UnsupportedOperatorError, match="'up' \\(Resize\\): nearest_mode 'up'"):
        import_model(data)


def test_outputs_that_farrier_does_not_compute(model):
    parameters = ["x", *"abcd"]
    # Before opset 14, further outputs meant training.
    norm = node("BatchNormalization", parameters, ["y", "mean"])
    constants = {name: np.ones(1, np.float32) for name in "abcd"}
    data = model([norm], {"x": [1, 1, 4, 4]}, ["y", "mean"], constants, opset=9)
    with pytest.raises(UnsupportedOperatorError, match="further output 'mean'"):
        import_model(data)


def test_mismatch_names_node_operator_and_both_facts(model):
    data = model([node("MatMul", ["x", "z"], ["y"], name="mm")], {"x": [3, 4], "z": [5, 6]})
    with pytest.raises(InvalidModelError) as caught:
        import_model(data)
    assert "'mm' (MatMul)" in caught.value.message
    assert "(3, 4) and (5, 6)" in caught.value.message


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (node("Conv", ["x", "x"], ["y"], group=0), "group is 0"),
        (node("Conv", ["x", "x"], ["y"], strides=[0, 1]), "must be positive"),
        (node("Conv", ["x", "x"], ["y"], pads=[1]), "pads \\(1,\\) for 2 spatial axes"),
        (node("Conv", ["x"], ["y"]), "1 inputs"),
        (node("Conv", ["x", ""], ["y"]), "input 1 is required"),
        (node("Transpose", ["x"], ["y"], perm=[0, 0, 1, 2]), "no permutation"),
        (node("Concat", ["x"], ["y"], axis=9), "axis 9"),
        (node("Cast", ["x"], ["y"], to=77), "type 77"),
        (node("Cast", ["x"], ["y"]), "lacks the attribute 'to'"),
        (node("Einsum", ["x"], ["y"], equation="ab->ab"), "labels"),
        (node("DepthToSpace", ["x"], ["y"], blocksize=0), "blocksize 0"),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[9, 9]), "does not fit"),
        (node("LeakyRelu", ["x"], ["y"], alpha="steep"), "'alpha' is STRING, and must be FLOAT"),
        (node("Add", ["x"], ["y"]), "1 inputs, not 2 to 2"),
        (node("Relu", ["x"], ["y"], value=1), "has no attribute 'value' in opset 17"),
        (node("Not", ["x"], ["y"]), "input 0 is f32, and must be one of bool"),
        (node("Gather", ["x", "x"], ["y"]), "input 1 is f32, and must be one of i32, i64"),
        (node("LpNormalization", ["x"], ["y"], p=3), "p is 3"),
        (node("LRN", ["x"], ["y"], size=0), "0 neighbouring channels"),
    ],
)
def test_malformed_nodes(model, bad, reason):
    with pytest.raises(InvalidModelError, match=reason):
        import_model(model([bad], {"x": [1, 2, 3, 3]}))


def test_names_defined_twice(model):
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    with pytest.raises(InvalidModelError, match="'y', which exists already"):
        import_model(model(twice, {"x": [1]}))
    with pytest.raises(InvalidModelError, match="'x', which exists already"):
        import_model(model([node("Relu", ["x"], ["x"])], {"x": [1]}, outputs=["x"]))


def test_dangling_input(model):
    with pytest.raises(InvalidModelError, match="reads 'nowhere'"):
        import_model(model([node("Add", ["x", "nowhere"], ["y"])], {"x": [1]}))


def test_missing_output(model):
    with pytest.raises(InvalidModelError, match="nothing defines the output 'z'"):
        import_model(model([node("Relu", ["x"], ["y"])], {"x": [1]}, outputs=["y", "z"]))


@pytest.mark.parametrize("place", [b"inin", b"outout", b"opop", b"nodenode"])
def test_names_that_are_not_utf8(model, place):
    add = node("Add", ["inin", "inin"], ["outout"], name="nodenode", domain="opop")
    whole = model([add], {"inin": [1]}, outputs=["outout"])
    with pytest.raises(InvalidModelError, match="is not UTF-8"):
        import_model(whole.replace(place, b"\xff" * len(place)))


def test_cycle(model):
    nodes = [node("Add", ["x", "b"], ["a"], name="one"), node("Relu", ["a"], ["b"], name="two")]
    with pytest.raises(InvalidModelError, match="cycle through 'one', 'two'"):
        import_model(model(nodes, {"x": [1]}, outputs=["a"]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]),
        lambda: helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [1]),
        lambda: onnx.ValueInfoProto(name="x"),
    ],
)
def test_inputs_that_are_no_tensors(model, make):
    proto = onnx.load_from_string(model([node("Relu", ["x"], ["y"])], {"x": [1]}))
    proto.graph.input[0].CopyFrom(make())
    with pytest.raises(InvalidModelError, match="input 'x'"):
        import_model(proto.SerializeToString())


def test_initializer_that_lies_about_its_shape(model):
    proto = onnx.load_from_string(
        model([node("Add", ["x", "w"], ["y"])], {"x": [3]}, constants={"w": np.ones(3, np.float32)})
    )
    for dims in ([4], [2], [-3], [1 << 40], []):
        del proto.graph.initializer[0].dims[:]
        proto.graph.initializer[0].dims.extend(dims)
        with pytest.raises(InvalidModelError, match="initializer 'w'"):
            import_model(proto.SerializeToString())


def test_a_rank_that_depends_on_data(model):
    data = model(
        [node("Unsqueeze", ["x", "a"], ["y"], name="u")],
        {"x": [6], "a": [2]},
        dtypes={"a": TensorProto.INT64},
    )
    with pytest.raises(UnresolvedShapeError, match="'u' \\(Unsqueeze\\): its axes \\(input 1\\)"):
        import_model(data)


BOMBS = {
    "ConstantOfShape": ([node("ConstantOfShape", ["n"], ["b"])], {"n": [1 << 20, 1 << 20]}),
    "Expand": ([node("Expand", ["one", "n"], ["b"])], {"n": [1 << 20, 1 << 20]}),
    "Tile": ([node("Tile", ["one", "n"], ["b"])], {"n": [1 << 40]}),
    "Range": ([node("Range", ["zero", "limit", "step"], ["b"])], {}),
    "Pad": ([node("Pad", ["one", "n"], ["b"])], {"n": [0, 1 << 40]}),
    "OneHot": ([node("OneHot", ["index", "depth", "pair"], ["b"])], {}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_size_bombs(model, name):
    """A few bytes ask for terabytes: refused by size, with nothing allocated."""
    nodes, constants = BOMBS[name]
    literals = {key: np.array(value, np.int64) for key, value in constants.items()}
    literals |= {
        "one": np.ones(1, np.float32),
        "zero": np.array(0, np.int64),
        "limit": np.array(1 << 45, np.int64),
        "step": np.array(1, np.int64),
        "index": np.zeros(1, np.int64),
        "depth": np.array(1 << 45, np.int64),
        "pair": np.array([0, 1], np.float32),
    }
    data = model([*nodes, node("Shape", ["b"], ["y"])], {"x": [1]}, constants=literals)
    with pytest.raises(InvalidModelError, match=r"takes \d+ bytes"):
        import_model(data)


def test_many_large_constants_together(model):
    shape = np.array([1 << 28], np.int64)
    fills = [node("ConstantOfShape", ["n"], [f"b{i}"]) for i in range(4)]
    data = model([*fills, node("Sum", ["b0", "b1", "b2", "b3"], ["y"])], {}, constants={"n": shape})
    with pytest.raises(InvalidModelError, match="more than 2 GiB"):
        import_model(data)


@pytest.mark.parametrize(
    ("nodes", "returned", "error", "message"),
    [
        ([node("Relu", ["nowhere"], ["z"])], "z", InvalidModelError, "reads 'nowhere'"),
        ([], "nowhere", InvalidModelError, "reads 'nowhere'"),
        ([node("Relu", ["z"], ["z"])], "z", InvalidModelError, "cycle"),
        ([node("Add", ["x"], ["z"])], "z", InvalidModelError, "1 inputs, not 2"),
        ([node("Relu", ["x"], ["z"]), node("Exp", ["x"], ["z"])], "z", InvalidModelError, "exists"),
    ],
)
def test_graphs_in_nodes_are_held_to_the_same(model, nodes, returned, error, message):
    body = helper.make_graph(nodes, "then", [], [helper.make_tensor_value_info(returned, 1, [1])])
    other = helper.make_graph([], "else", [], [helper.make_tensor_value_info("x", 1, [1])])
    branch = node("If", ["c"], ["y"], then_branch=body, else_branch=other, name="choose")
    inputs = {"x": [1], "c": [], "w": [2, 3]}
    with pytest.raises(error, match=message):
        import_model(model([branch], inputs, dtypes={"c": TensorProto.BOOL}))


def test_typed_fields_read_like_raw_bytes(model):
    """Initializers may store elements in typed fields instead of raw bytes."""
    for dtype in (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_):
        want = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
        proto = onnx.load_from_string(
            model([node("Identity", ["w"], ["y"])], {}, constants={"w": want})
        )
        kind = helper.np_dtype_to_tensor_dtype(want.dtype)
        typed = helper.make_tensor("w", kind, want.shape, want.flatten().tolist())
        proto.graph.initializer[0].CopyFrom(typed)
        (constant,) = import_model(proto.SerializeToString()).graph.constants
        np.testing.assert_array_equal(constant.data, want)
        assert numpy_helper.to_array(typed).dtype == constant.data.dtype


def test_operands_that_must_be_of_one_type(model):
    add = node("Add", ["x", "z"], ["y"])
    data = model([add], {"x": [1], "z": [1]}, dtypes={"z": TensorProto.DOUBLE})
    with pytest.raises(InvalidModelError, match="input 1 is f64, and another is f32"):
        import_model(data)


@pytest.mark.parametrize("op", ["Gather", "ScatterElements", "Softmax", "Split", "Concat"])
def test_a_scalar_has_no_axis(model, op):
    operands = {"Gather": ["x", "i"], "ScatterElements": ["x", "i", "x"], "Concat": ["x", "x"]}
    inputs = operands.get(op, ["x"])
    attrs = {"num_outputs": 1} if op == "Split" else {}
    data = model(
        [node(op, inputs, ["y"], axis=0, **attrs)],
        {"x": []},
        constants={"i": np.array(0)},
        opset=18,
    )
    with pytest.raises(InvalidModelError, match="axis 0 of a tensor of rank 0"):
        import_model(data)


def test_the_sum_of_a_scalar_over_its_first_axis(model):
    """Exporters write this, though a scalar has no axes."""
    data = model([node("ReduceSum", ["x", "a"], ["y"])], {"x": []}, constants={"a": np.array([0])})
    assert import_model(data).graph.outputs[0].type.shape == ()


@pytest.mark.parametrize("version", [-1, 1 << 40])
def test_versions_of_other_domains(model, version):
    proto = onnx.load_from_string(model([node("Relu", ["x"], ["y"])], {"x": [1]}))
    proto.opset_import.add(domain="other", version=version)
    with pytest.raises(InvalidModelError, match=f"opset {version} of 'other'"):
        import_model(proto.SerializeToString())


def test_an_axis_too_long_to_cut_apart_is_a_sequence_as_it_lies(model):
    nodes = [node("SplitToSequence", ["x"], ["s"]), node("SequenceLength", ["s"], ["y"])]
    assert len(import_model(model(nodes, {"x": [1_000_000]})).graph.nodes) < 10


def _with_functions(model, bodies):
    """A model that calls the first of local functions of one input and one output."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    call = node(next(iter(bodies)), ["x"], ["y"], domain="local")
    proto = onnx.load_from_string(model([call], {"x": [3]}))
    proto.opset_import.append(opsets[1])
    for name, nodes in bodies.items():
        proto.functions.append(helper.make_function("local", name, ["a"], ["b"], nodes, opsets))
    return proto.SerializeToString()


def test_functions_that_call_each_other(model):
    calls = {
        "F": [node("G", ["a"], ["b"], domain="local")],
        "G": [node("F", ["a"], ["b"], domain="local")],
    }
    with pytest.raises(InvalidModelError, match=r"the function local:[FG] calls itself"):
        import_model(_with_functions(model, calls))


def test_functions_that_grow_beyond_what_is_read(model):
    bodies = {
        f"F{i}": [
            node(f"F{i + 1}", ["a"], ["t"], domain="local"),
            node(f"F{i + 1}", ["t"], ["b"], domain="local"),
        ]
        for i in range(20)
    }
    bodies["F20"] = [node("Neg", ["a"], ["b"])]
    with pytest.raises(InvalidModelError, match=f"has {1 << 20} nodes"):
        import_model(_with_functions(model, bodies))


def test_what_a_model_calls_things_cannot_disturb_a_terminal(model):
    data = model([node("\x1b[2Jboo", ["x"], ["y"])], {"x": [1]})
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(data)
    assert "\\x1b[2Jboo ×1" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_very_long_name_is_cut(model):
    with pytest.raises(UnsupportedOperatorError) as caught:
        import_model(model([node("n" * 1_000_000, ["x"], ["y"])], {"x": [1]}))
    assert len(str(caught.value)) < 20_000


def test_a_loop_whose_iteration_is_no_scalar(model):
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Neg", ["s"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [3]),
        ],
        [onnx.ValueInfoProto(name="d"), onnx.ValueInfoProto(name="t")],
    )
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    with pytest.raises(InvalidModelError, match=r"its iteration v\d+ is no i64"):
        import_model(model([loop], {"x": [3]}, constants={"n": np.array(100)}))


def test_an_input_without_a_name(model):
    with pytest.raises(InvalidModelError, match="an input has no name"):
        import_model(model([node("Relu", ["x"], ["y"])], {"x": [1], "": [2]}))


@pytest.mark.parametrize(
    ("data", "words", "hint"),
    [
        (b"\x18\0\0\0ORTM\0\0\0\0", "ONNX Runtime's own format", "compile the .onnx"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d", "Git LFS", "git lfs pull"),
        (b"PK\x03\x04\x14\0", "ZIP archive", "torch.onnx.export"),
        (b"<!DOCTYPE html>", "web pages", "download"),
        (b"\x80\x02}q\0.", "pickle", "torch.export.save"),
        (b"\x80\x04}\x94.", "pickle", "skl2onnx"),
        (b'\x40\0\0\0\0\0\0\0{"__meta', ".safetensors", "export"),
        (b"\x1c\0\0\0ET12", ".pte", ".pt2"),
    ],
)
def test_files_of_other_formats_are_named(data, words, hint):
    with pytest.raises(InvalidModelError, match=words) as caught:
        import_model(data)
    assert hint in caught.value.hint
