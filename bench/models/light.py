"""The light models of the onnx package: topologies of known networks, with random weights.

The package's files compute every weight at run time as a constant tensor of one value, which a
compiler would fold. Here each weight becomes an initializer of seeded random numbers, scaled such
that activations stay near one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from bench.models.writer import Size
from farrier.errors import UsageError

_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light(name: str, seed: int = 0, shape: Sequence[Size] | None = None) -> bytes:
    """Return one of the `onnx` package's light models (`squeezenet`, `densenet121`, `inception_v2`,
    `shufflenet`, …) as ONNX bytes, the same for the same seed. `shape` replaces the input's shape.
    Raises UsageError for an unknown name."""
    path = _FOLDER / f"light_{name}.onnx"
    if not path.is_file():
        names = sorted(p.stem.removeprefix("light_") for p in _FOLDER.glob("light_*.onnx"))
        raise UsageError(f"there is no light model {name!r}", hint=f"models: {', '.join(names)}")
    model = onnx.load(path)
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    rng = np.random.default_rng(seed)
    constants_of_shape = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    for node in constants_of_shape:
        sizes = tuple(int(size) for size in numpy_helper.to_array(constants[node.input[0]]))
        graph.initializer.append(numpy_helper.from_array(_weights(rng, sizes), node.output[0]))
        graph.node.remove(node)
    _drop(graph, {node.input[0] for node in constants_of_shape})
    if shape is not None:
        _reshape(graph, shape)
    return bytes(model.SerializeToString())


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return random weights in f32. A vector may be a bias, a scale, a mean or a variance, so its
    elements are positive."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    # Less than usual, for the biases above push up: no network's softmax saturates.
    deviation = math.sqrt(0.5 / math.prod(shape[1:]))
    return rng.normal(0.0, deviation, shape).astype(np.float32)


def _drop(graph: onnx.GraphProto, names: set[str]) -> None:
    """Remove these names, which no node reads any more, from the graph's initializers and
    inputs."""
    for field in (graph.initializer, graph.input):
        kept = [item for item in field if item.name not in names]
        del field[:]
        field.extend(kept)


def _reshape(graph: onnx.GraphProto, shape: Sequence[Size]) -> None:
    """Replace the input's shape, and the batch of the output's shape."""
    constants = {tensor.name for tensor in graph.initializer}
    (network_input,) = (value for value in graph.input if value.name not in constants)
    for value, sizes in ((network_input, shape), (graph.output[0], shape[:1])):
        for dim, size in zip(value.type.tensor_type.shape.dim, sizes, strict=False):
            if isinstance(size, str):
                dim.dim_param = size
            else:
                dim.dim_value = size
