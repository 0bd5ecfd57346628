"""Arrays by name in a file that this machine writes and the root reads, or the other way round.

The file is a graph of ONNX with nothing but initializers: it holds every element type that models
have, strings and those of less than a byte included.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


def save(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write the arrays; what lies there is replaced."""
    found = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    path.write_bytes(onnx.GraphProto(initializer=found).SerializeToString())


def load(path: Path) -> Arrays:
    """The arrays that `save` wrote."""
    graph = onnx.GraphProto.FromString(path.read_bytes())
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
