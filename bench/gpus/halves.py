"""Convert a model from f32 to f16."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_FLOAT, _HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def halved(data: bytes) -> bytes:
    """Return a model with inputs, constants and conversions of f32 changed to f16; the scales of a
    Resize must remain f32."""
    model = onnx.load_from_string(data)
    _halve(model.graph)
    return bytes(model.SerializeToString())


def _halve(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    wide = {name for node in graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for tensor in graph.initializer:
        if tensor.name not in wide:
            _halve_tensor(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _FLOAT:
            value.type.tensor_type.elem_type = _HALF
    for node in graph.node:
        if wide.isdisjoint(node.output):
            _halve_attributes(node.op_type, node.attribute)


def _halve_attributes(operator: str, attributes: Iterable[onnx.AttributeProto]) -> None:
    for attribute in attributes:
        if attribute.name == "to" and operator == "Cast" and attribute.i == _FLOAT:
            attribute.i = _HALF
        if attribute.HasField("t"):
            _halve_tensor(attribute.t)
        if attribute.HasField("g"):
            _halve(attribute.g)


def _halve_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _FLOAT:
        with np.errstate(over="ignore"):  # BERT's masks are larger than any f16.
            array = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
