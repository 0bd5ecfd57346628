"""Random strings, and models that take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

# Letters whose case changes in unusual ways, and separators. `words` adds any character but NUL.
LETTERS = "abAB, \t\u00a0ßŉΣςσİıǅﬁéÉ́'.·ΐ𐐨\U000e0001"
words = st.text(st.sampled_from(LETTERS) | st.characters(exclude_characters="\0"), max_size=9)


def tensor(values: Any) -> onnx.TensorProto:
    array = np.asarray(values)
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array)


def strings_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str | None] | None]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
) -> bytes:
    """The bytes of a model of the newest opsets; `inputs` are element types and shapes."""
    infos = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
    tensors = []
    for name, values in (constants or {}).items():
        tensors.append(tensor(values))
        tensors[-1].name = name
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "strings", infos, results, tensors)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("ai.onnx.ml", 4)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    return bytes(model.SerializeToString())


STRING = TensorProto.STRING
