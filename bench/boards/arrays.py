"""Arrays by name, and lists of them, in a file that this machine writes and the root reads, or the
other way round.

The file is a graph of ONNX with nothing but initializers: it holds every element type that models
have, strings and those of less than a byte included. The members of a list have its name, and a
mark; an empty list is its mark alone.
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
    """Write the arrays and lists to a file, which is replaced."""
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
    """Return the arrays and lists that `save` wrote."""
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
