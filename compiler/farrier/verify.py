"""The reference that a compiled model is held to, and random inputs to hold it with."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from farrier.artifact.manifest import TensorSpec
from farrier.ir.graph import Graph
from farrier.ir.types import DType

Arrays = dict[str, npt.NDArray[Any]]

TOLERANCE = 1e-4  # of the output's range


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> Arrays:
    """One array an input: floats from a normal distribution; integers are 0 or 1, because they are
    token ids, masks and lengths, and any table has two rows."""
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for spec in specs:
        dtype = DType(spec.dtype).numpy
        if dtype.kind == "f":
            arrays[spec.name] = generator.standard_normal(spec.shape).astype(dtype)
        else:
            arrays[spec.name] = generator.integers(0, 2, spec.shape).astype(dtype)
    return arrays


def reference_outputs(
    model: bytes, graph: Graph, inputs: Mapping[str, npt.NDArray[Any]], names: Sequence[str]
) -> tuple[Arrays, str]:
    """The model's outputs by name, and who computed them: ONNX Runtime where it is installed,
    because it shares no code with Farrier, else the operators' numpy reference on `graph`.

    `names` are the outputs' names in the order of `graph.outputs`; `inputs` are in the order of
    `graph.inputs`.
    """
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        results = session.run(list(names), dict(inputs))
        version = onnxruntime.__version__
        return dict(zip(names, results, strict=True)), f"ONNX Runtime {version}"

    from farrier.ops.evaluate import evaluate_graph

    values = evaluate_graph(graph, list(inputs.values()))
    return dict(zip(names, values, strict=True)), "numpy"
