"""Exchange named arrays, and lists of arrays, between this machine and the emulated one in a file.

The file is an ONNX graph that consists of initializers only, so it supports every element type of
models, including strings and types of less than 8 bits. The items of a list have the list's name
with a suffix; an empty list is an initializer with the suffix only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

Arrays: TypeAlias = dict[str, Any]  # Each is an array, or a list of arrays.

_LIST, _MEMBER = "list", "member"


def save(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays and lists to a file, replacing it."""
    tensors = [tensor for name, value in arrays.items() for tensor in _tensors(name, value)]
    path.write_bytes(onnx.GraphProto(initializer=tensors).SerializeToString())


def _tensors(name: str, value: Any) -> Iterator[onnx.TensorProto]:
    if not isinstance(value, list):
        yield _tensor(name, value, "")
        return
    yield _tensor(name, np.zeros(0, np.float32), _LIST)
    for member in value:
        yield _tensor(name, member, _MEMBER)


def _tensor(name: str, array: npt.NDArray[Any], mark: str) -> onnx.TensorProto:
    tensor = numpy_helper.from_array(np.asarray(array), name)
    tensor.doc_string = mark
    return tensor


def load(path: Path) -> Arrays:
    """Return the arrays and lists in a file that `save` wrote."""
    graph = onnx.GraphProto.FromString(path.read_bytes())
    arrays: Arrays = {}
    for tensor in graph.initializer:
        if tensor.doc_string == _LIST:
            arrays[tensor.name] = []
        elif tensor.doc_string == _MEMBER:
            arrays[tensor.name].append(numpy_helper.to_array(tensor))
        else:
            arrays[tensor.name] = numpy_helper.to_array(tensor)
    return arrays
