"""Inputs are read where they lie, at whatever address, and not beyond their ends."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import farrier
from farrier.errors import InputMismatchError

RNG = np.random.default_rng(5)
ARRAYS = {
    "a": RNG.standard_normal((37, 53)).astype(np.float32),
    "b": RNG.standard_normal((53, 41)).astype(np.float32),
    "image": RNG.standard_normal((1, 5, 17, 19)).astype(np.float32),
    "bytes": RNG.integers(0, 255, (3, 67)).astype(np.uint8),
    "doubles": RNG.standard_normal((9, 33)),
}
TYPES = {"bytes": TensorProto.UINT8, "doubles": TensorProto.DOUBLE}


@pytest.fixture(scope="module")
def artifact():
    """Products, a window, bytes that are multiplied as integers, a sum along lanes, a transpose."""
    weights = RNG.standard_normal((24, 5, 3, 3)).astype(np.float32)
    factors = RNG.integers(-9, 9, (67, 31)).astype(np.int8)
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["product"]),
        helper.make_node("Conv", ["image", "w"], ["filtered"], pads=[1] * 4),
        helper.make_node("MatMulInteger", ["bytes", "factors"], ["sums"]),
        helper.make_node("Softmax", ["doubles"], ["shares"]),
        helper.make_node("Transpose", ["a"], ["turned"]),
    ]
    outputs = ("product", "filtered", "sums", "shares", "turned")
    graph = helper.make_graph(
        nodes,
        "placed",
        [
            helper.make_tensor_value_info(name, TYPES.get(name, TensorProto.FLOAT), array.shape)
            for name, array in ARRAYS.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(factors, "factors")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return farrier.compile(model, threads=2, verify=False)


def at(array, offset):
    """A copy of an array, `offset` of its elements beyond a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset * array.itemsize
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_any_address_gives_the_same_and_is_read_in_place(artifact):
    session = artifact.session()
    expected = session.run({name: at(array, 0) for name, array in ARRAYS.items()})
    for offset in range(1, 8):
        placed = {name: at(array, offset) for name, array in ARRAYS.items()}
        outputs = session.run(placed)
        addresses = tuple(array.ctypes.data for array in placed.values())
        assert session.addresses[: len(placed)] == addresses
        for name, array in expected.items():
            np.testing.assert_array_equal(outputs[name], array)


def test_elements_that_straddle_their_own_alignment_are_copied(artifact):
    session = artifact.session()
    expected = session.run(ARRAYS)["product"]
    raw = np.frombuffer(b"\0" + ARRAYS["a"].tobytes(), np.uint8)[1:]
    a = raw.view(np.float32).reshape(ARRAYS["a"].shape)
    np.testing.assert_array_equal(session.run({**ARRAYS, "a": a})["product"], expected)
    assert session.addresses[0] != a.ctypes.data


def test_nothing_is_read_beyond_the_end(artifact):
    """Inputs that end with their page, behind which nothing may be read."""
    arrays, pages = {}, []
    for name, array in ARRAYS.items():
        room = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        page = mmap.mmap(-1, room + mmap.PAGESIZE)
        pages.append(page)
        memory = np.frombuffer(page, np.uint8)
        protect(memory.ctypes.data + room, mmap.PAGESIZE)
        placed = memory[room - array.nbytes : room].view(array.dtype).reshape(array.shape)
        placed[...] = array
        arrays[name] = placed
    session = artifact.session()
    expected, outputs = session.run(ARRAYS), session.run(arrays)
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)


def protect(address, nbytes):
    """Make memory fault when it is touched."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), 0) == 0


def test_outputs_are_written_where_they_are_to_lie(artifact):
    """At any address of an element, by the model itself; new arrays as well."""
    session = artifact.session()
    expected = session.run(ARRAYS)
    for offset in range(8):
        into = {name: at(np.zeros_like(array), offset) for name, array in expected.items()}
        results = session.run(ARRAYS, into)
        written = session.addresses[len(ARRAYS) : len(ARRAYS) + len(into)]
        assert written == tuple(array.ctypes.data for array in into.values())
        for name, array in expected.items():
            assert results[name] is into[name]
            np.testing.assert_array_equal(into[name], array)
    results = session.run(ARRAYS)
    written = session.addresses[len(ARRAYS) : len(ARRAYS) + len(results)]
    assert written == tuple(array.ctypes.data for array in results.values())


def test_results_of_earlier_calls_stay(artifact):
    session = artifact.session()
    first = session.run(ARRAYS)
    kept = {name: array.copy() for name, array in first.items()}
    session.run({name: np.zeros_like(array) for name, array in ARRAYS.items()}, {"sums": None})
    session.run({name: np.zeros_like(array) for name, array in ARRAYS.items()})
    for name, array in kept.items():
        np.testing.assert_array_equal(first[name], array)


@pytest.mark.parametrize("kind", ["an input", "another output", "strided", "reversed"])
def test_arrays_that_the_model_cannot_write_as_it_goes_are_written_afterwards(artifact, kind):
    session = artifact.session()
    expected = session.run(ARRAYS)
    a, turned = ARRAYS["a"].copy(), np.zeros(expected["turned"].shape, np.float32)
    into = {"turned": turned}
    if kind == "an input":
        into["turned"] = a.reshape(turned.shape)
    elif kind == "another output":
        memory = np.zeros(expected["product"].size + turned.size, np.float32)
        into = {
            "product": memory[: expected["product"].size].reshape(expected["product"].shape),
            "turned": memory[1 : 1 + turned.size].reshape(turned.shape),
        }
    elif kind == "strided":
        into["turned"] = np.zeros((turned.shape[0], 2 * turned.shape[1]), np.float32)[:, ::2]
    else:
        into["turned"] = turned[::-1]
    results = session.run({**ARRAYS, "a": a}, into)
    assert results["turned"] is into["turned"]
    np.testing.assert_array_equal(into["turned"], expected["turned"])


def test_an_output_that_cannot_be_written_is_refused(artifact):
    turned = np.zeros(ARRAYS["a"].T.shape, np.float32)
    turned.flags.writeable = False
    with pytest.raises(InputMismatchError, match="output turned is read-only"):
        artifact.session().run(ARRAYS, {"turned": turned})
