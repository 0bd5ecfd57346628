"""An artifact in this process: whatever arrays are given, whoever calls, however it is loaded."""

from __future__ import annotations

import gc
import os
import threading

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import farrier
from farrier.errors import FarrierError, InputMismatchError, UsageError

RNG = np.random.default_rng(11)
SHAPE = (1, 16, 33, 33)


@pytest.fixture(scope="module")
def artifact():
    weights = RNG.standard_normal((24, 16, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)
    y = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "conv", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return farrier.compile(model, threads=2, verify=False)


@pytest.fixture(scope="module")
def x():
    return RNG.standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(scope="module")
def y(artifact, x):
    return artifact.run({"x": x})["y"]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda a: a.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2),
        lambda a: np.repeat(a, 2, axis=3)[..., ::2],
        read_only,
        memoryview,
        lambda a: np.frombuffer(b"\0" * 4 + a.tobytes(), np.float32)[1:].reshape(a.shape),
    ],
)
def test_memory_of_any_order_is_read(artifact, x, y, form):
    np.testing.assert_array_equal(artifact.run({"x": form(x)})["y"], y)


@pytest.mark.parametrize(
    "value",
    [3, None, "text", [[1, 2], [3]], np.zeros(SHAPE), np.zeros(SHAPE, ">f4"), np.zeros(5, "f4")],
    ids=["int", "none", "text", "ragged", "float64", "big-endian", "shape"],
)
def test_what_is_no_such_array_is_refused(artifact, value):
    with pytest.raises(InputMismatchError, match="input x is"):
        artifact.run({"x": value})


@pytest.mark.parametrize("inputs", [{}, {"z": 1}, {1: 1}, [1], None])
def test_inputs_that_are_not_by_name_are_refused(artifact, inputs):
    with pytest.raises(InputMismatchError):
        artifact.run(inputs)


def test_what_numpy_makes_of_an_input_lives_until_the_call_is_over():
    """Lists and scalars become arrays that only the session knows."""
    node = helper.make_node("Neg", ["x"], ["y"])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, (64,))
    graph = helper.make_graph([node], "neg", [x], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    artifact = farrier.compile(model, verify=False)
    for number in range(200):
        values = list(range(number, number + 64))
        assert artifact.run({"x": values})["y"].tolist() == [-value for value in values]


def test_calls_from_several_threads(artifact, x):
    inputs = [RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(4)]
    expected = [artifact.run({"x": array})["y"] for array in inputs]
    wrong = []

    def work(number):
        for _ in range(30):
            if not np.array_equal(artifact.run({"x": inputs[number]})["y"], expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sessions_leave_neither_files_nor_threads(artifact, tmp_path, x, y):
    path = artifact.save(tmp_path / "döss pace 模型" / "mödel x.farrier")

    def load(number):
        loaded = farrier.load(path)
        session = loaded.session(threads=1 + number % 2)
        np.testing.assert_allclose(session.run({"x": x})["y"], y, rtol=1e-4, atol=1e-4)
        if number % 3 == 0:
            session.close()

    load(1)
    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for number in range(30):
        load(number)
    gc.collect()
    # Fewer files are not a leak: a session of an earlier test may have ended meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads


def test_a_closed_session_is_not_called_and_a_new_one_is_made(artifact, x, y):
    session = artifact.session()
    session.close()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": x})
    np.testing.assert_array_equal(artifact.run({"x": x})["y"], y)


@pytest.mark.parametrize("threads", [-1, 1000, 2**40])
def test_threads_that_it_has_no_memory_for(artifact, threads):
    with pytest.raises(UsageError, match="runs with 1 to"):
        artifact.session(threads=threads)


def test_damage_anywhere_is_told(artifact, tmp_path, x, y):
    """A flipped bit never leads to another answer, nor to a traceback."""
    data = artifact.save(tmp_path / "whole.farrier").read_bytes()
    damaged = tmp_path / "damaged.farrier"
    rng = np.random.default_rng(5)
    refusals = 0
    edges = [*range(0, 600, 5), *range(len(data) - 600, len(data), 5)]
    for position in (*edges, *rng.integers(0, len(data), 100)):
        content = bytearray(data)
        content[position] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(content)
        try:
            loaded = farrier.load(damaged)
            result = loaded.session().run({"x": x})
            assert list(result) == ["y"]
            np.testing.assert_array_equal(result["y"], y)
        except FarrierError:
            refusals += 1
    assert refusals > 50
