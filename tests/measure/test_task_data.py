"""The inputs and expected outputs of candidates, as they lie in memory."""

from __future__ import annotations

import numpy as np
import pytest

from farrier.ir.graph import Graph, Node, Value, attributes
from farrier.ir.types import DType, Layout, TensorType
from farrier.measure.task_data import make_task_data
from farrier.ops.run import run_graph
from farrier.partition.task import Task


def test_inputs_and_outputs_lie_as_their_types_say(subject):
    region, data = subject.task.region, make_task_data(subject.task)
    arrays = {}
    for value, raw in zip(region.inputs, data.inputs, strict=True):
        kind = value.type
        assert len(raw) == kind.nbytes
        memory = np.frombuffer(raw, np.float32)
        shape = kind.static_shape
        arrays[value.name] = (
            kind.layout.unpack(memory, shape) if kind.layout else memory.reshape(shape)
        )
        assert np.isfinite(arrays[value.name]).all()
    (output,) = region.outputs
    memory = np.frombuffer(data.expected[0], np.float32)
    unpacked = output.type.layout.unpack(memory, output.type.static_shape)
    np.testing.assert_allclose(unpacked, run_graph(region, arrays)["y"], rtol=1e-4, atol=1e-4)


def test_halos_are_zero_and_the_rest_of_a_block_is_marked(subject):
    lanes = subject.target.lanes
    data = make_task_data(subject.task)
    extents = (1, -(-20 // lanes), 11, 11, lanes)
    for raw, bits in ((data.inputs[0], 0x7FC00000), (data.expected[0], data.padding[0])):
        memory = np.frombuffer(raw, np.uint32).reshape(extents)
        used = 20 - (extents[1] - 1) * lanes
        assert (memory[:, -1, ..., used:] == bits).all()
        assert (memory[:, :, 0, :, :used] == 0).all()
        assert (memory[:, :, :, -1, :used] == 0).all()
        assert (memory[:, 0, 1:-1, 1:-1, :].astype(np.int64) != bits).all()


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I16, DType.I32, DType.F16])
def test_what_fills_up_a_block_is_marked_in_any_dtype(dtype):
    blocked = TensorType(dtype, (1, 20, 3, 3), Layout.blocked(4, 1, 8))
    x, y = Value("x", blocked), Value("y", blocked)
    region = Graph("g", (x,), (), (Node("Neg", (x,), (y,)),), (y,))
    data = make_task_data(Task("a7" * 32, "t", region, frozenset()))
    memory = np.frombuffer(data.expected[0], f"u{dtype.nbytes}").reshape(1, 3, 3, 3, 8)
    assert (memory[:, 2, ..., 4:] == data.padding[0]).all()
    assert (memory[:, 2, ..., :4] != data.padding[0]).all()
    assert (memory[:, :2] != data.padding[0]).all()


def test_equal_tasks_get_equal_data_and_others_do_not(subject):
    again = make_task_data(subject.task)
    assert make_task_data(subject.task) == again
    other = Task("d1" * 32, "other", subject.task.region, subject.task.constant_inputs)
    assert make_task_data(other).inputs[0] != again.inputs[0]


def test_integers_index_any_axis_and_never_divide_by_zero():
    def data_of(op, dtype, **attrs):
        x = Value("x", TensorType(DType.F32 if op == "Gather" else dtype, (7, 3)))
        i = Value("i", TensorType(dtype, (7, 3) if op == "Div" else (50,)))
        shape = (7, 3) if op == "Div" else (50, 3)
        y = Value("y", TensorType(x.type.dtype, shape))
        region = Graph("g", (x, i), (), (Node(op, (x, i), (y,), attributes(**attrs)),), (y,))
        return make_task_data(Task("e2" * 32, "t", region, frozenset()))

    indices = np.frombuffer(data_of("Gather", DType.I64, axis=0).inputs[1], np.int64)
    assert set(indices) == {0, 1}
    assert (np.frombuffer(data_of("Div", DType.I32).inputs[1], np.int32) != 0).all()
