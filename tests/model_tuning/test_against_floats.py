"""The report on quantized models that gain nothing, with the reason."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from farrier.frontends.onnx.importer import import_model
from farrier.ops import run_graph
from farrier.options import CompileOptions
from farrier.passes.float_form import float_form, has_pairs, products_of_bytes
from farrier.pipeline import StoppedError, compile_model
from farrier.progress import Warned
from farrier.progress.steps import Dump

_VNNI = "i7-12700"


class _Model:
    """QDQ convolutions one after the other, as quantizers write them."""

    def __init__(self, channels=64) -> None:
        self.channels = channels
        self.nodes, self.constants = [], []
        self.inputs = [_floats("x", 1, channels, 28, 28)]
        self._constant("scale", np.array(0.05, np.float32))
        self._constant("zero", np.array(128, np.uint8))
        self.last = self._pair("x")

    def _constant(self, name, array):
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def _node(self, op, inputs, **attributes):
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def _pair(self, name):
        quantized = self._node("QuantizeLinear", [name, "scale", "zero"])
        return self._node("DequantizeLinear", [quantized, "scale", "zero"])

    def convolution(self, group=1, constant=True):
        shape = (self.channels, self.channels // group, 3, 3)
        if constant:
            rng = np.random.default_rng(len(self.nodes))
            array = rng.integers(-127, 128, shape).astype(np.int8)
            weights = self._constant(f"w{len(self.nodes)}", array)
            weights = self._node("DequantizeLinear", [weights, "scale"])
        else:
            self.inputs.append(_floats(f"in{len(self.inputs)}", *shape))
            weights = self._pair(self.inputs[-1].name)
        product = self._node("Conv", [self.last, weights], group=group, pads=[1] * 4)
        self.last = self._pair(product)
        return self

    def file(self, quantized=True):
        nodes = self.nodes if quantized else [helper.make_node("Relu", ["x"], ["y"])]
        output = _floats(self.last if quantized else "y", 1, self.channels, 28, 28)
        graph = helper.make_graph(nodes, "g", self.inputs, [output], self.constants)
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _told(model, target):
    said = []
    options = CompileOptions(target=target, threads=1, verify=False)
    with pytest.raises(StoppedError):
        compile_model(model, options, listener=said.append, dump=Dump(until="lower"))
    return [event.message for event in said if isinstance(event, Warned)]


def test_products_of_bytes_on_a_machine_that_adds_them_up_gain():
    assert _told(_Model().convolution().convolution().file(), _VNNI) == []


def test_a_machine_without_dot_products_is_named():
    (message,) = _told(_Model().convolution().convolution().file(), "rpi4")
    assert "times as long as its float form on cortex-a72" in message
    assert "no instruction that adds up products of bytes" in message
    assert message.endswith("Compile the model that was not quantized for this target")


@pytest.mark.parametrize(
    ("channels", "how", "why"),
    [
        # Groups of 33 channels are not a multiple of four.
        (66, {"group": 2}, "a convolution in groups"),
        (64, {"constant": False}, "weights are not constant"),
    ],
)
def test_products_that_stay_floats_are_named(channels, how, why):
    model = _Model(channels).convolution(**how).convolution(**how)
    (message,) = _told(model.file(), _VNNI)
    assert "100% of its multiply-adds are of floats, such as those of 'Conv_" in message
    assert why in message


def test_a_model_of_floats_is_not_asked(monkeypatch):
    def asked(*_):
        raise AssertionError

    monkeypatch.setattr("farrier.model_tuning.against_floats.make_variant", asked)
    assert _told(_Model().file(quantized=False), "rpi4") == []


def test_the_float_form_rounds_nothing_and_keeps_what_saturates():
    graph = import_model(_Model().convolution().file()).graph
    assert [node.op for node in products_of_bytes(graph)] == ["Conv"]
    floats = float_form(graph)
    assert has_pairs(graph)
    assert not has_pairs(floats)
    assert list(products_of_bytes(floats)) == []
    x = np.random.default_rng(0).normal(0, 4, (1, 64, 28, 28)).astype(np.float32)
    name = graph.inputs[0].name
    (rounded,), (exact,) = (run_graph(form, {name: x}).values() for form in (graph, floats))
    low, high = 0.05 * -128, 0.05 * 127
    assert exact.min() >= np.float32(low)
    assert exact.max() <= np.float32(high)
    assert (exact == np.float32(high)).any()
    assert 0 < np.abs(rounded - exact).mean() < 0.5
