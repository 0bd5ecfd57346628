"""A model's bytes without the elements of large initializers."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from farrier.errors import InvalidModelError
from farrier.frontends.onnx.importer import import_model
from farrier.frontends.onnx.importer.wire import split


def model(arrays, name="g"):
    """One whose output is the last initializer; the graph's name moves them by a byte each."""
    initializers = [numpy_helper.from_array(array, key) for key, array in arrays.items()]
    last = list(arrays)[-1]
    kind = helper.np_dtype_to_tensor_dtype(arrays[last].dtype)
    out = helper.make_tensor_value_info("y", kind, arrays[last].shape)
    node = helper.make_node("Identity", [last], ["y"])
    graph = helper.make_graph([node], name, [], [out], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def arrays():
    rng = np.random.default_rng(5)
    return {
        "small": rng.standard_normal(7).astype(np.float32),
        "größe": rng.standard_normal((3, 1031)).astype(np.float32),
        "bytes": rng.integers(0, 255, 4099, np.uint8),
        "half": rng.standard_normal((2, 5, 503)).astype(np.float16),
    }


@pytest.mark.parametrize("shift", range(4))
def test_elements_lie_where_the_model_has_them(shift):
    expected, proto = arrays(), model(arrays(), "g" * (1 + shift))
    data = proto.SerializeToString()
    message, elements = split(data)
    assert set(elements) == {"größe", "bytes", "half"}
    assert len(message) < 1000
    left = onnx.ModelProto.FromString(message)
    for tensor in left.graph.initializer:
        if tensor.name in elements:
            assert not tensor.HasField("raw_data")
            assert elements[tensor.name].obj is data
            tensor.raw_data = bytes(elements[tensor.name])
    assert left == proto
    (constant,) = import_model(data).graph.constants
    np.testing.assert_array_equal(constant.data, expected["half"])


def test_a_tensor_that_says_less_than_it_stores_is_refused_by_name():
    proto = model(arrays())
    proto.graph.initializer[1].dims[1] += 1
    with pytest.raises(InvalidModelError, match="'größe' of f32 has the shape"):
        import_model(proto.SerializeToString())


def test_initializers_of_one_name_stay_in_the_message_and_are_refused():
    proto = model(arrays())
    proto.graph.initializer[2].name = "half"
    data = proto.SerializeToString()
    assert split(data) == (data, {})
    with pytest.raises(InvalidModelError, match="two initializers or inputs are named 'half'"):
        import_model(data)


def test_two_graphs_which_protobuf_merges_stay_one_message():
    data = model(arrays()).SerializeToString()
    assert split(data + data) == (data + data, {})


@given(st.binary(max_size=64), st.integers(0, 12000), st.integers(0, 255))
def test_what_is_damaged_is_left_to_protobuf(noise, at, byte):
    whole = model(arrays()).SerializeToString()
    for data in (noise, whole[:at], whole[:at] + bytes([byte]) + whole[at + 1 :]):
        message, elements = split(data)
        if not elements:
            assert message is data
        try:
            before = onnx.ModelProto.FromString(data)
        except Exception:
            continue
        after = onnx.ModelProto.FromString(message)
        for tensor in after.graph.initializer:
            if not isinstance(tensor.name, bytes) and tensor.name in elements:
                tensor.raw_data = bytes(elements[tensor.name])
        assert after == before


def test_an_integer_without_an_end_is_no_message():
    assert split(b"\x80" * 20) == (b"\x80" * 20, {})
    assert TensorProto.RAW_DATA_FIELD_NUMBER == 9  # The ONNX standard defines this number.
