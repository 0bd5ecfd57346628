"""A table agrees with the operators in its place, for every byte."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graph_tools import NetworkBuilder, settings_of
from hypothesis import given
from hypothesis import strategies as st

from farrier.ir.graph import Value
from farrier.ir.types import DType, TensorType
from farrier.ops import run_graph
from farrier.ops.verify import verify
from farrier.targets import parse_target
from farrier.targets.cpu.passes.tabulate_bytes import tabulate_bytes

_LOOKS_UP = settings_of("tabulate-bytes")
_ONE_BY_ONE = dataclasses.replace(_LOOKS_UP, target=parse_target("x86-64-v3"))
_BYTES = st.sampled_from([DType.U8, DType.I8])
_STEPS = st.sampled_from(
    ["Sigmoid", "Tanh", "Erf", "Sqrt", "Reciprocal", "Mul", "Add", "requantize"]
)
_SCALES = st.floats(2.0**-10, 8, width=32)


class _Network(NetworkBuilder):
    def bytes(self, dtype):
        """An input that every byte is an element of."""
        value = Value(f"in{len(self.inputs)}", TensorType(dtype, (1, 4, 8, 8)))
        self.inputs.append(value)
        return value

    def scalar(self, number, dtype=np.float32):
        return self.array(np.array(number, dtype))

    def quantized(self, x, scale, zero, dtype):
        point = self.scalar(zero + dtype.limits[0], dtype.numpy)
        to = {"to": dtype.value, "precision": "f32", "saturate": 1}
        return self.add("QuantizeLinear", x, self.scalar(scale), point, **to)

    def dequantized(self, x, scale, zero):
        point = self.scalar(zero + x.type.dtype.limits[0], x.type.dtype.numpy)
        return self.add("DequantizeLinear", x, self.scalar(scale), point, to="f32")


def _every_byte(graph):
    return {
        value.name: np.arange(256, dtype=np.uint8).view(value.type.dtype.numpy).reshape(1, 4, 8, 8)
        for value in graph.inputs
    }


def _operators(graph):
    return [node.op for node in graph.nodes]


@given(
    _BYTES, _BYTES, _SCALES, _SCALES, st.integers(0, 255), st.lists(_STEPS, max_size=5), st.data()
)
def test_every_byte_becomes_what_the_operators_make_of_it(
    source, result, scale, other, zero, steps, data
):
    net = _Network(0)
    x = net.bytes(source)
    real = first = net.dequantized(x, scale, zero)
    for step in steps:
        if step == "requantize":
            quantized = net.quantized(real, data.draw(_SCALES), zero, data.draw(_BYTES))
            real = net.dequantized(quantized, other, zero)
        elif step in ("Mul", "Add"):
            real = net.add(step, real, data.draw(st.sampled_from([first, net.scalar(other)])))
        else:
            real = net.add(step, real)
    graph = net.graph(net.quantized(real, other, zero, result))
    tabulated = tabulate_bytes(graph, _LOOKS_UP)
    verify(tabulated)
    (last,) = tabulated.nodes[-1:]
    assert (last.op, last.inputs) == ("ByteTable", (x,))
    inputs = _every_byte(graph)
    (wanted,), (actual,) = (run_graph(version, inputs).values() for version in (graph, tabulated))
    np.testing.assert_array_equal(actual, wanted)
    assert actual.dtype == wanted.dtype


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_value_that_is_read_elsewhere_stays(name):
    net = _Network(0)
    x = net.dequantized(net.bytes(DType.U8), 0.1, 3)
    y = net.add("Sigmoid", x)
    also = net.add("ReduceSum", {"x": x, "y": y}[name], net.array(np.array([1])), keepdims=1)
    graph = net.graph(net.quantized(y, 0.004, 0, DType.U8), also)
    tabulated = tabulate_bytes(graph, _LOOKS_UP)
    assert "ByteTable" in _operators(tabulated)
    inputs = _every_byte(graph)
    for wanted, actual in zip(
        run_graph(graph, inputs).values(), run_graph(tabulated, inputs).values(), strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)


def test_where_bytes_are_looked_up_one_by_one_short_chains_stay():
    net = _Network(0)
    short = net.quantized(net.dequantized(net.bytes(DType.U8), 0.1, 3), 0.2, 1, DType.U8)
    real = net.add("Sigmoid", net.dequantized(net.bytes(DType.U8), 0.1, 3))
    long = net.quantized(real, 0.2, 1, DType.U8)
    graph = net.graph(short, long)
    assert _operators(tabulate_bytes(graph, _LOOKS_UP)).count("ByteTable") == 2
    actual = tabulate_bytes(graph, _ONE_BY_ONE)
    assert [node.outputs[0] for node in actual.nodes if node.op == "ByteTable"] == [long]


def test_a_cast_alone_is_no_table():
    net = _Network(0)
    graph = net.graph(net.add("Cast", net.bytes(DType.U8), to="i8"))
    assert _operators(tabulate_bytes(graph, _LOOKS_UP)) == ["Cast"]
